import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference_densities import Weighted, quick_jit, worst_deviation

from aninfonce_jax.dgp import shell


def reject_plainly(anchor, concentration, width, proposals):
    """The paper's loop: returns what is kept, projected, and the share that is kept."""
    noise = np.random.default_rng(1).standard_normal((proposals, anchor.size))
    draws = anchor + noise / np.sqrt(concentration)
    norm = np.linalg.norm(draws, axis=1, keepdims=True)
    kept = np.abs(norm[:, 0] - 1) < width
    return (draws / norm)[kept], kept.mean()


def test_follows_the_same_law_as_the_papers_loop():
    width = 0.5
    concentration = np.repeat([25.0, 5.0], 3)
    anchor = np.array([0.7, 0.1, -0.5, 0.3, 0.4, 0.0])
    anchor /= np.linalg.norm(anchor)
    plain, _ = reject_plainly(anchor, concentration, width, 400_000)
    reference = Weighted(plain, np.full(len(plain), 1 / len(plain)), exact=False)
    anchors = jnp.broadcast_to(jnp.float32(anchor)[None, :], (60_000, 6))
    draws = quick_jit(shell.sample, static_argnums=3)(
        jax.random.key(0), anchors, jnp.float32(concentration), width
    )
    np.testing.assert_allclose(np.linalg.norm(draws, axis=1), 1.0, rtol=1e-5)
    assert worst_deviation(np.asarray(draws), reference) < 5.0


def test_share_that_the_papers_loop_keeps():
    concentration = (25.0,) * 5 + (5.0,) * 5
    shares = [
        reject_plainly(np.eye(10)[axis], np.array(concentration), 0.1, 400_000)[1]
        for axis in (0, 9)
    ]
    assert shell.estimate_share(concentration, 0.1) == pytest.approx(min(shares), rel=0.05)


def test_tiny_shares_are_estimated_too():
    # A wide normal is flat across the ball: its density at 0 times the volume of the shell.
    volume = 2 * np.pi * 2 * 1e-3
    expected = 1e-6 / (2 * np.pi) * volume
    assert shell.estimate_share((1e-6, 1e-6), 1e-3) == pytest.approx(expected, rel=0.5)
    assert shell.estimate_share((1e-6,) * 10, 1e-3) < 1e-30
