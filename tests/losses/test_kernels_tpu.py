"""The kernels, and what chooses them, through the TPU compiler, which needs libtpu but no TPU.

Each topology is compiled for in a process of its own, which is this file run as a script:
libtpu is loaded once per process, for good, and other tests should not have it around.
"""

import importlib.util
import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None,
    reason="libtpu is not installed; pip install 'aninfonce-jax[tpu]' brings the TPU compiler",
)

TOPOLOGIES = ("v5e:2x2", "v5p:2x2x1", "v6e:2x2")
# Rows per device, which no block divides.
ROWS = 4000
# Name: dtype, precision, dim. A dim that no 128 divides, and then the largest blocks that
# the default picks, which come closest to the limit of memory on the chip.
SMALL = {
    "float32": ("float32", "HIGHEST", 100),
    "bfloat16": ("bfloat16", "DEFAULT", 100),
}
LARGE = {
    f"float32, dim {dim}": ("float32", "HIGHEST", dim) for dim in (128, 384, 512, 768, 1024, 2048)
}


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_compiles_without_an_array_of_all_pairs(topology):
    check(topology, "small", SMALL)


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_losses_of_a_pod_compile(topology):
    """Enough rows that gather, ring and auto take the kernels, through `over_mesh`."""
    found = compiled_elsewhere(topology, "losses")
    # In-batch negatives: the value, and one gradient. A bank has a gradient of its own.
    assert {name: case["kernels"] for name, case in found.items()} == {
        "gather": 2,
        "ring": 4,
        "auto": 2,
        "gather, bank": 3,
        "ring, bank": 6,
        "pallas, bank on one chip": 3,
    }
    for case in found.values():
        # All scores of a chip's rows would take 61 MiB on one chip, and 244 on four.
        assert case["peak_bytes"] < 3 * 2**24


def test_compiles_with_64_bit_types_enabled():
    check(TOPOLOGIES[0], "small", SMALL, JAX_ENABLE_X64="1")


@pytest.mark.slow
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_default_blocks_fit(topology):
    check(topology, "large", LARGE)


def test_plain_jit_spreads_what_auto_chooses_and_kernels_are_refused():
    """Sharded rows without an `axis_name`, and enough of them that auto would like kernels."""
    found = compiled_elsewhere("v5e:2x2", "jit")
    assert found["auto"] == "compiled with 0 kernels"
    assert "use an.over_mesh" in found["pallas"]


@pytest.mark.parametrize("topology", ["v5e:8x8", pytest.param("v5e:16x16", marks=pytest.mark.slow)])
def test_transfers_around_the_ring_of_a_pod_do_not_block(topology):
    """Between neighbours, that is: in the order of `jax.devices()` some of them do."""
    found = compiled_elsewhere(topology, "ring")
    assert found["along the ring"] == {"asynchronous": 8, "blocking": 0}
    # The compiler still needs the order; without this, the test above would show nothing.
    assert found["as listed"]["blocking"] > 0


def compiled_elsewhere(topology: str, which: str, **settings: str) -> dict:
    """Runs this file as a script."""
    settings |= {"JAX_PLATFORMS": "cpu", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1", "XLA_FLAGS": ""}
    run = subprocess.run(
        [sys.executable, __file__, topology, which],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def check(topology: str, which: str, cases: dict, **settings: str) -> None:
    compiled = compiled_elsewhere(topology, which, **settings)
    assert list(compiled) == list(cases)
    for name, found in compiled.items():
        dim = cases[name][2]
        assert found["kernels"] == 4
        # Two inputs and three gradients, each with and without padding: 20 MiB in the small
        # cases, where all pairs would take 61 MiB.
        assert found["peak_bytes"] <= 10 * 4096 * max(128, dim) * 4
        # The scores, in four kernels, and three gradients.
        assert found["flops"] >= 7 * 2 * ROWS**2 * dim


def describe(compiled) -> dict[str, float]:
    memory = compiled.memory_analysis()
    return {
        "kernels": compiled.as_text().count('custom_call_target="tpu_custom_call"'),
        # Either may leave out what the other counts.
        "peak_bytes": max(memory.peak_memory_in_bytes, memory.temp_size_in_bytes),
    }


def compile_kernels(topology: str, cases: dict) -> dict[str, dict[str, float]]:
    """Compiles all kernels, inside shard_map with its check of varying axes."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax import lax
    from jax.experimental import topologies
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    from aninfonce_jax.losses import kernels, tiles

    devices = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
    mesh, spec = Mesh(np.array(devices), ("data",)), PartitionSpec("data")

    def compile_one(dtype, precision, dim):
        options = {"precision": lax.Precision[precision]}

        def local(*problem):
            best, total = kernels.forward(*problem, **options)
            logsumexp = best + jnp.log(total)
            cotangent = jnp.ones_like(logsumexp)
            members = tiles.ScoredPoints(*problem[1:3], problem[4], logsumexp, cotangent)
            return (
                kernels.backward(*problem, logsumexp, cotangent, **options),
                kernels.each_other_backward(members, members, **options),
            )

        def abstract(shape, dtype):
            sharding = NamedSharding(mesh, spec)
            return jax.ShapeDtypeStruct((ROWS * mesh.size, *shape), dtype, sharding=sharding)

        points, index = abstract((dim,), dtype), abstract((), jnp.int32)
        problem = (points, points, abstract((), jnp.float32), index, index)
        mapped = jax.shard_map(
            local, mesh=mesh, in_specs=(spec,) * 5, out_specs=spec, check_vma=True
        )
        compiled = jax.jit(mapped).lower(*problem).compile()
        return describe(compiled) | {"flops": compiled.cost_analysis()["flops"]}

    return {name: compile_one(*case) for name, case in cases.items()}


def compile_losses(topology: str) -> dict[str, dict[str, int]]:
    """Compiles value and gradient of losses that choose the kernels."""
    import functools

    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.experimental import topologies
    from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

    import aninfonce_jax as an

    devices = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices

    def compile_one(strategy, bank=False, chips=None):
        mesh = Mesh(np.array(devices[:chips]), ("data",), axis_types=(AxisType.Auto,))
        view = jax.ShapeDtypeStruct(
            (ROWS * mesh.size, 64),
            jnp.float32,
            sharding=NamedSharding(mesh, PartitionSpec("data")),
        )
        loss = functools.partial(an.aninfonce_loss, strategy=strategy)
        if mesh.size > 1:
            loss = an.over_mesh(loss, mesh, "data")

        def mean(view1, view2, *bank):
            negatives = bank[0] if bank else "anchors"
            return loss(view1, view2, 1.0, negatives=negatives).loss

        arguments = (view,) * (3 if bank else 2)
        grad = jax.value_and_grad(mean, argnums=tuple(range(len(arguments))))
        return describe(jax.jit(grad).lower(*arguments).compile())

    return {
        "gather": compile_one("gather"),
        "ring": compile_one("ring"),
        "auto": compile_one("auto"),
        "gather, bank": compile_one("gather", bank=True),
        "ring, bank": compile_one("ring", bank=True),
        "pallas, bank on one chip": compile_one("pallas", bank=True, chips=1),
    }


def count_transfers(topology: str) -> dict[str, dict[str, int]]:
    """Compiles value and gradient of the ring, and counts its transfers by how they run."""
    import functools
    import re

    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.experimental import topologies
    from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

    import aninfonce_jax as an

    def compile_one(mesh):
        rows = NamedSharding(mesh, PartitionSpec("data"))
        view = jax.ShapeDtypeStruct((ROWS * mesh.size, 128), jnp.bfloat16, sharding=rows)
        loss = functools.partial(
            an.aninfonce_loss,
            negatives="anchors",
            strategy="ring",
            precision=jax.lax.Precision.DEFAULT,
        )
        spread = an.over_mesh(loss, mesh, "data")
        grad = jax.value_and_grad(lambda *views: spread(*views, 1.0).loss, argnums=(0, 1))
        text = jax.jit(grad).lower(view, view).compile().as_text()
        return {
            "asynchronous": len(re.findall(r" collective-permute-start\(", text)),
            "blocking": len(re.findall(r" collective-permute\(", text)),
        }

    placement = an.Placement.of_topology(topology)
    listed = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
    return {
        "along the ring": compile_one(placement.mesh),
        "as listed": compile_one(Mesh(np.array(listed), ("data",), axis_types=(AxisType.Auto,))),
    }


def compile_under_jit(topology: str) -> dict[str, str]:
    """Compiles value and gradient of the loss of sharded rows, and says how that went."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.experimental import topologies
    from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

    import aninfonce_jax as an

    devices = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
    mesh = Mesh(np.array(devices), ("data",), axis_types=(AxisType.Auto,))
    rows = NamedSharding(mesh, PartitionSpec("data"))
    view = jax.ShapeDtypeStruct((ROWS, 128), jnp.float32, sharding=rows)
    jax.default_backend = lambda: "tpu"  # as it would be on the machine that this is for

    def attempt(strategy):
        def loss(view1, view2):
            return an.aninfonce_loss(view1, view2, 1.0, strategy=strategy).loss

        try:
            compiled = jax.jit(jax.value_and_grad(loss)).lower(view, view).compile()
        except ValueError as error:
            return str(error)
        kernels = compiled.as_text().count('custom_call_target="tpu_custom_call"')
        return f"compiled with {kernels} kernels"

    return {strategy: attempt(strategy) for strategy in ("auto", "pallas")}


if __name__ == "__main__":
    topology, which = sys.argv[1:]
    if which == "jit":
        print(json.dumps(compile_under_jit(topology)))
    elif which == "ring":
        print(json.dumps(count_transfers(topology)))
    elif which == "losses":
        print(json.dumps(compile_losses(topology)))
    else:
        print(json.dumps(compile_kernels(topology, {"small": SMALL, "large": LARGE}[which])))
