"""The losses against what other libraries return for the same embeddings.

The numbers were computed once, in float64, with torch 2.13.0, open_clip_torch 3.3.0, lightly 1.6.0,
pytorch-metric-learning 2.9.0 and cebra 0.6.1, which are not needed here.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import aninfonce_jax as an

ROWS, DIM, BANK = 12, 5, 9
_RNG = np.random.default_rng(16)
VIEW1, _NOISE, NEGATIVES = (_RNG.normal(size=(rows, DIM)) for rows in (ROWS, ROWS, BANK))
VIEW2 = VIEW1 + 0.5 * _NOISE
LABELS = np.array([0, 0, 1, 1, 2, 2, 2, 3, 4, 5, 6, 6])


def infonce(**settings):
    return an.infonce_loss(jnp.asarray(VIEW1), jnp.asarray(VIEW2), **settings).loss


def vicreg():
    placement = an.Placement.local(1)
    pairs = an.Pairs(jnp.asarray(VIEW1), jnp.asarray(VIEW2))
    return an.objectives.VICReg()({}, lambda x: x, pairs, jax.random.key(0), placement)[0]


# Name -> our loss, and theirs. Where negatives alone are in theirs, it is a sum and ours a mean.
CASES = {
    "open_clip ClipLoss, scale 5": (
        lambda: infonce(temperature=1 / 5, negatives="cross"),
        0.807972408697236,
    ),
    "open_clip SigLipLoss, scale 5, bias -3": (
        lambda: (
            an.sigmoid_loss(
                jnp.asarray(VIEW1), jnp.asarray(VIEW2), temperature=1 / 5, bias=-3.0
            ).loss
        ),
        2.986178519861927,
    ),
    "lightly NTXentLoss, τ 0.2": (lambda: infonce(temperature=0.2), 1.2723172188578395),
    "pytorch-metric-learning NTXentLoss, τ 0.2": (
        lambda: infonce(temperature=0.2),
        1.2723172188578395,
    ),
    "pytorch-metric-learning SupConLoss, τ 0.2": (
        lambda: infonce(temperature=0.2, labels=jnp.asarray(LABELS)),
        4.308960145489118,
    ),
    "lightly DCLLoss, τ 0.2": (
        lambda: infonce(temperature=0.2, reduction="logmeanexp") + np.log(2 * ROWS - 2),
        0.8746599402650824,
    ),
    "lightly VICRegLoss": (vicreg, 13.058239986890511),
    "cebra FixedCosineInfoNCE, τ 0.2": (
        lambda: (
            infonce(temperature=0.2, negatives=jnp.asarray(NEGATIVES), reduction="logmeanexp")
            + np.log(BANK)
        ),
        -0.9634224151034694,
    ),
    "cebra FixedEuclideanInfoNCE, τ 0.7": (
        lambda: (
            an.lp_loss(
                jnp.asarray(VIEW1),
                jnp.asarray(VIEW2),
                p=2,
                temperature=0.7,
                negatives=jnp.asarray(NEGATIVES),
                reduction="logmeanexp",
            ).loss
            + np.log(BANK)
        ),
        -3.8391546256094022,
    ),
}


@pytest.mark.parametrize("name", list(CASES))
def test_the_same_number_as_another_library(name):
    ours, theirs = CASES[name]
    np.testing.assert_allclose(ours(), theirs, rtol=1e-5)


def test_the_same_numbers_and_gradients_as_optax():
    views = jnp.asarray(np.concatenate([VIEW1, VIEW2]), jnp.float32)
    pairs = jnp.tile(jnp.arange(ROWS), 2)

    def ours(views):
        return an.infonce_loss(views[:ROWS], views[ROWS:], temperature=0.2).loss

    def theirs(views):
        with jax.numpy_rank_promotion("allow"):
            return optax.losses.ntxent(views, pairs, temperature=0.2)

    (value, gradient), (expected, slope) = (
        jax.value_and_grad(loss)(views) for loss in (ours, theirs)
    )
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    np.testing.assert_allclose(gradient, slope, rtol=1e-4, atol=1e-6)

    unit = views / jnp.linalg.norm(views, axis=1, keepdims=True)
    scores = 5 * unit[:ROWS] @ unit[ROWS:].T - 3
    pairwise = optax.losses.sigmoid_binary_cross_entropy(scores, jnp.eye(ROWS))
    found = an.sigmoid_loss(views[:ROWS], views[ROWS:], temperature=1 / 5, bias=-3.0).loss
    np.testing.assert_allclose(found, jnp.sum(pairwise) / ROWS, rtol=1e-5)
