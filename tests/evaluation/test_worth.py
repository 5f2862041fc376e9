import jax
import jax.numpy as jnp
import numpy as np
import pytest

import aninfonce_jax as an
from aninfonce_jax.evaluation.worth import (
    LEAST_OFFERED,
    find_too_little,
    mean_worth,
    worth_of_factors,
)
from aninfonce_jax.sources.source import PowerScore

DIM, BATCH = 3, 32
TRUTH = np.array([20.0, 6.0, 2.0])


def draw(key, count):
    process = an.LatentProcess(
        an.Sphere(DIM), an.marginals.Uniform(), an.conditionals.Anisotropic(TRUTH), jnp.asarray
    )
    pairs = process.sample(key, count)
    return pairs.latents1.reshape(-1, BATCH, DIM), pairs.latents2.reshape(-1, BATCH, DIM)


def test_the_worth_is_what_the_loss_rises_by():
    latents1, latents2 = jax.jit(draw, static_argnums=1)(jax.random.key(0), 1000 * BATCH)

    def rises(one, other):
        rows = np.concatenate([TRUTH[None], np.where(np.eye(DIM, dtype=bool), 0.0, TRUTH)])
        settings = {"negatives": "anchors", "normalize": False}
        loss = jax.vmap(lambda row: an.aninfonce_loss(one, other, row, **settings).loss)
        whole, *without = loss(jnp.float32(rows))
        return jnp.stack(without) - whole

    rise = np.asarray(jax.lax.map(lambda pair: rises(*pair), (latents1, latents2)))
    worth = jax.lax.map(
        lambda pair: worth_of_factors(*pair, PowerScore(TRUTH)), (latents1, latents2)
    )
    worth = np.asarray(worth)
    gap = rise - worth
    error = gap.std(axis=0, ddof=1) / np.sqrt(len(gap))
    assert np.all(np.abs(gap.mean(axis=0)) < 4 * error)
    assert np.all(4 * error < 0.1 * worth.mean(axis=0))  # so that the test could fail
    # The reason for it: the mean is known far better than by the losses.
    assert np.all(worth.std(axis=0) < 0.7 * rise.std(axis=0))
    of_setting = an.factor_worth(TRUTH, BATCH, batches=100)
    np.testing.assert_allclose(of_setting, worth.mean(axis=0), rtol=0.05)


def test_other_exponents_have_their_own_score():
    one, other = (jax.random.uniform(jax.random.key(k), (BATCH, DIM)) for k in (0, 1))
    worth = worth_of_factors(one, other, PowerScore(TRUTH, 1.0))
    expected = []
    keys = np.repeat(np.asarray(one)[None], BATCH, axis=0)
    keys[np.arange(BATCH), np.arange(BATCH)] = other
    parts = TRUTH * np.abs(keys - np.asarray(one)[:, None])
    whole = np.exp(-parts.sum(-1))
    whole /= whole.sum(1, keepdims=True)
    for k in range(DIM):
        without = np.exp(-np.delete(parts, k, axis=-1).sum(-1))
        without /= without.sum(1, keepdims=True)
        expected.append(np.mean(np.sum(whole * np.log(whole / without), axis=1)))
    np.testing.assert_allclose(worth, expected, rtol=1e-4)


def test_factors_that_others_tell_already_are_worth_nothing():
    tight = 1e4 * jnp.ones(DIM)
    latents = jax.random.normal(jax.random.key(0), (BATCH, DIM))
    worth = worth_of_factors(latents, latents, PowerScore(np.asarray(tight)))
    np.testing.assert_array_equal(worth, 0.0)
    said = find_too_little(np.asarray(worth), np.asarray(tight), BATCH, 10**6)
    assert said.startswith("factors of Λ = 10000 may not be found with these negatives")
    assert "31 of them" in said


def test_it_is_the_pairs_of_the_run_that_count():
    worth, truth = np.array([0.5, 0.01]), np.array([20.0, 2.0])
    steps = round(LEAST_OFFERED / (0.01 * BATCH))
    assert find_too_little(worth, truth, BATCH, steps + 1) is None
    assert find_too_little(worth, truth, BATCH, steps - 1).startswith("factors of Λ = 2 ")


def test_factors_of_the_same_concentration_share_their_mean():
    of_batches = np.array([[1.0, 2.0, 6.0], [3.0, 4.0, 8.0]])
    found = mean_worth(of_batches, np.array([5.0, 20.0, 5.0]))
    np.testing.assert_allclose(found, [4.5, 3.0, 4.5])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (([5.0], 8), "at least two factors, got 1"),
        (([5.0, -1.0], 8), "positive and finite, got -1"),
        (([5.0, 1.0], 1), "batch_size must be at least 2"),
        (([5.0, 1.0], 8, 0), "got 8 and 0"),
    ],
)
def test_bad_input_is_refused(arguments, said):
    concentration, batch_size, *batches = arguments
    with pytest.raises(ValueError, match=said):
        an.factor_worth(concentration, batch_size, **dict(zip(["batches"], batches, strict=False)))
