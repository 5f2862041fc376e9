"""Several processes, as on several hosts: one loss, one gradient."""

import pathlib
import socket
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference_losses import anisotropic_score, enumerate_pairs, naive_per_anchor

WORKER = pathlib.Path(__file__).with_name("multiprocess_worker.py")
BATCH, DIM = 16, 3


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return listener.getsockname()[1]


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_processes_agree_with_float64(processes: int, tmp_path: pathlib.Path) -> None:
    rng = np.random.default_rng(0)
    view1 = rng.normal(size=(BATCH, DIM)).astype(np.float32)
    view2 = view1 + 0.3 * rng.normal(size=view1.shape).astype(np.float32)
    concentration = np.array([1.0, 4.0, 20.0], np.float32)
    source, target = tmp_path / "inputs.npz", tmp_path / "results.npz"
    np.savez(source, view1=view1, view2=view2, concentration=concentration)
    port = free_port()
    workers = [
        subprocess.Popen(
            [sys.executable, WORKER, str(process), str(processes), str(port), source, target],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for process in range(processes)
    ]
    outputs = [worker.communicate(timeout=300)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * processes, "\n".join(outputs)

    rows = enumerate_pairs(BATCH, "both")

    def mean(view1, view2, concentration):
        score = anisotropic_score
        return naive_per_anchor(view1, view2, concentration, score=score, rows=rows).mean()

    with jax.enable_x64(True):
        exact = [jnp.asarray(np.float64(x)) for x in (view1, view2, concentration)]
        loss, gradients = jax.jit(jax.value_and_grad(mean, argnums=(0, 1, 2)))(*exact)
    results = np.load(target)
    for strategy in ("gather", "ring"):
        np.testing.assert_allclose(results[f"{strategy}/loss"], loss, rtol=1e-6)
        names = ("d_view1", "d_view2", "d_concentration")
        for name, expected in zip(names, gradients, strict=True):
            got = results[f"{strategy}/{name}"]
            np.testing.assert_allclose(
                got, expected, atol=1e-5 * np.max(np.abs(expected)), err_msg=f"{strategy} {name}"
            )
