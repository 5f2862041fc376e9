"""One of several processes that compute one loss together: run by test_multiprocess.py.

python multiprocess_worker.py PROCESS PROCESSES PORT INPUT OUTPUT
"""

import os
import sys

LOCAL_DEVICES = 2
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={LOCAL_DEVICES}"

import jax  # noqa: E402
import numpy as np  # noqa: E402
from jax.experimental import multihost_utils  # noqa: E402
from jax.sharding import AxisType, Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import aninfonce_jax as an  # noqa: E402


def main(process: int, processes: int, port: str, source: str, target: str) -> None:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", processes, process)
    mesh = Mesh(np.array(jax.devices()), ("data",), axis_types=(AxisType.Auto,))
    assert mesh.size == processes * LOCAL_DEVICES
    given = np.load(source)
    rows = NamedSharding(mesh, P("data"))

    def own_rows(view: np.ndarray) -> jax.Array:
        share = np.split(view, processes)[process]
        return jax.make_array_from_process_local_data(rows, share, view.shape)

    arguments = own_rows(given["view1"]), own_rows(given["view2"]), given["concentration"]
    results = {}
    for strategy in ("gather", "ring"):

        def loss(view1, view2, concentration, strategy=strategy, **axis):
            return an.aninfonce_loss(view1, view2, concentration, strategy=strategy, **axis)

        spread = an.over_mesh(loss, mesh, "data")
        step = jax.jit(jax.value_and_grad(lambda *a: spread(*a).loss, argnums=(0, 1, 2)))  # noqa: B023
        value, gradients = step(*arguments)
        names = ("loss", "d_view1", "d_view2", "d_concentration")
        for name, array in zip(names, (value, *gradients), strict=True):
            # Replicated arrays are whole in every process; others are put together.
            whole = multihost_utils.process_allgather(array, tiled=True)
            results[f"{strategy}/{name}"] = np.asarray(whole)
    if process == 0:
        np.savez(target, **results)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
