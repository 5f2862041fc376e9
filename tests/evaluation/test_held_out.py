import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import aninfonce_jax as an
from aninfonce_jax.evaluation.held_out import HeldOutPairs, loss_findings
from aninfonce_jax.sources.source import PowerScore


class Noise(an.Source):
    """Pairs of noisy points, made of a key alone."""

    def example(self):
        return jnp.zeros((2, 3))

    def pairs(self, key, fed, batch_size):
        point, *noise = jax.random.split(key, 3)
        clean = jax.random.normal(point, (batch_size, 3))
        return an.Pairs(*(clean + 0.1 * jax.random.normal(k, clean.shape) for k in noise))


class Fed(Noise):
    """The same, but of rows that the host hands over."""

    def __init__(self, first=0.0):
        self.first = first

    def fed(self, batch_size):
        return jax.ShapeDtypeStruct((batch_size, 3), jnp.float32)

    def pairs(self, key, fed, batch_size):
        return an.Pairs(fed, fed)

    def held_out(self, batch_size):
        return Fed(first=100.0)

    def open_feed(self, rows, *, seed, step):
        return Rows(
            np.float32(np.sin(self.first + rows.positions(batch)))[:, None] * np.ones((1, 3))
            for batch in itertools.count(step)
        )


class Rows:
    def __init__(self, rows):
        self.rows = rows
        self.unreadable = {3: "row 3 is damaged"}

    def __iter__(self):
        return self

    def __next__(self):
        return np.float32(next(self.rows))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.rows = iter(())


def experiment_on(source, **changes):
    dense = (lambda key, x: jnp.eye(3), lambda matrix, x: x @ matrix)
    settings = {"batch_size": 8, "evaluation": an.EvalConfig(held_out_batches=3)} | changes
    return an.Experiment(source, dense, an.objectives.AnInfoNCE(), optax.sgd(0.1), **settings)


def held_out(experiment):
    pairs = HeldOutPairs(experiment, an.Placement.local(2))
    return pairs, jax.jit(experiment.init_state)().weights


def test_the_same_pairs_come_at_every_evaluation():
    pairs, weights = held_out(experiment_on(Noise()))
    findings = pairs.losses(weights, full=False)
    again = pairs.losses(weights, full=False)
    assert findings.scores == again.scores
    low, high = findings.intervals["loss"]
    assert low < findings.scores["loss"] < high
    other, _ = held_out(experiment_on(Noise(), seed=1))
    assert other.losses(weights, full=False).scores != findings.scores


def test_collapse_is_measured_on_what_the_objective_compares():
    pairs, weights = held_out(experiment_on(Noise()))
    findings = pairs.collapse(weights, full=False)
    assert 1 < findings.scores["effective_rank_embedding"] <= 3
    np.testing.assert_allclose(np.linalg.norm(findings.embeddings, axis=1), 1, rtol=1e-5)
    flat = jax.tree.map(jnp.zeros_like, weights)
    flat.params["encoder"] = flat.params["encoder"].at[0, 0].set(1.0)
    assert pairs.collapse(flat, full=False).scores["effective_rank_embedding"] == pytest.approx(1)


def test_a_fed_source_is_scored_on_what_it_holds_out():
    experiment = experiment_on(Fed())
    pairs, weights = held_out(experiment)
    found = pairs.losses(weights, full=False).scores["loss"]
    expected, placement = [], an.Placement.local(1)
    loss = jax.jit(lambda given: experiment.loss(weights, given, jax.random.key(0), placement))
    for batch in range(3):
        rows = np.sin(100.0 + np.arange(8 * batch, 8 * batch + 8))[:, None] * np.ones((1, 3))
        given = an.Pairs(jnp.float32(rows), jnp.float32(rows))
        expected.append(loss(given))
    assert found == pytest.approx(np.mean(expected), rel=1e-5)
    assert pairs.unreadable == {"row 3 is damaged"}
    assert pairs.collapse(weights, full=False).embeddings.shape == (8, 3)


def test_a_fed_source_that_holds_out_nothing_has_no_loss():
    class Greedy(Fed):
        held_out = an.Source.held_out

    pairs, weights = held_out(experiment_on(Greedy()))
    assert np.isnan(pairs.losses(weights, full=False).scores["loss"])
    assert pairs.collapse(weights, full=False).scores == {}


def test_a_known_score_needs_the_latents_of_the_pairs():
    class Forgetful(Noise):
        known = an.Known(
            latents=an.Latents(
                lambda key, count: (jnp.zeros((count, 3)),) * 2, None, PowerScore(np.ones(3))
            )
        )

    pairs, weights = held_out(experiment_on(Forgetful()))
    with pytest.raises(ValueError, match="must give their latents: set latents1 and latents2"):
        pairs.losses(weights, full=False)


def test_the_distance_from_the_floor_is_taken_batch_by_batch():
    losses, floors = np.array([1.0, 2.0, 3.0]), np.array([0.5, 1.5, 2.5])
    findings = loss_findings(losses, floors)
    assert findings.scores == {"loss": 2.0, "loss_floor": 1.5, "loss_above_floor": 0.5}
    assert findings.intervals["loss_above_floor"] == pytest.approx([0.5, 0.5])
    assert set(loss_findings(losses, None).scores) == {"loss"}


def test_the_overlap_of_embeddings_is_of_held_out_pairs():
    pairs, weights = held_out(experiment_on(Noise(), batch_size=32))
    found = pairs.losses(weights, full=False)
    assert 0 < found.scores["overlap"] < 0.3  # of points and of themselves with some noise
    low, high = found.intervals["overlap"]
    assert low <= found.scores["overlap"] <= high
    # The latents of these pairs are not known.
    assert "overlap_true" not in found.scores
    positives, negatives = np.array(found.scores["similarities"]["of_embeddings"])
    np.testing.assert_allclose([positives.sum(), negatives.sum()], 1)
    assert positives[-5:].sum() > 0.8 > 0.2 > negatives[-5:].sum()
    # To an encoder that keeps one direction, half of the other points are alike.
    weights.params["encoder"] = weights.params["encoder"].at[1:].set(0.0)
    assert pairs.losses(weights, full=False).scores["overlap"] > 0.4


def test_the_overlap_of_true_latents_does_not_depend_on_the_encoder():
    class Latent(Noise):
        def pairs(self, key, fed, batch_size):
            made = super().pairs(key, fed, batch_size)
            return an.Pairs(made.view1, made.view2, made.view1, made.view2)

    pairs, weights = held_out(experiment_on(Latent(), batch_size=32))
    found = pairs.losses(weights, full=False).scores
    assert found["overlap_true"] == found["overlap"]  # the encoder is the identity
    flat = jax.tree.map(jnp.zeros_like, weights)
    other = pairs.losses(flat, full=False).scores
    assert other["overlap"] == 1
    assert other["overlap_true"] == found["overlap_true"]


def test_pairs_that_are_not_finite_have_no_overlap():
    pairs, weights = held_out(experiment_on(Noise()))
    lost = jax.tree.map(lambda x: jnp.full_like(x, jnp.nan), weights)
    findings = pairs.losses(lost, full=False)
    assert "overlap" not in findings.scores
    assert findings.scores["similarities"] == {}
