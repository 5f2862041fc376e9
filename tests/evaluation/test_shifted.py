import jax
import jax.numpy as jnp
import optax
import pytest

import aninfonce_jax as an
from aninfonce_jax.evaluation.shifted import make_shifted

DIM = 3


class Moved(an.Source):
    """Normal points around the origin, and others that were moved along the first axis."""

    def __init__(self, distance):
        self.distance = distance

    @property
    def known(self):
        def draw(key, count):
            latents = jax.random.normal(key, (count, DIM))
            return latents, 2 * latents

        def draw_shifted(key, count):
            latents = draw(key, count)[0].at[:, 0].add(self.distance)
            return latents, 2 * latents

        return an.Known(latents=an.Latents(draw, draw_shifted=draw_shifted))

    def example(self):
        return jnp.zeros((2, DIM))

    def pairs(self, key, fed, batch_size):
        points = 2 * jax.random.normal(key, (batch_size, DIM))
        return an.Pairs(points, points)


def scores_of(distance, apply=lambda _, x: x):
    experiment = an.Experiment(
        Moved(distance),
        (lambda key, x: {}, apply),
        an.objectives.AnInfoNCE(),
        optax.sgd(0.1),
        evaluation=an.EvalConfig(samples=512),
    )
    weights = jax.jit(experiment.init_state)().weights
    part = make_shifted(experiment, an.Placement.local(1), experiment.source.known.latents)
    found = part(weights, full=False)
    assert found.intervals.keys() == found.scores.keys()
    return found.scores


@pytest.mark.parametrize(("distance", "least", "most"), [(0, 0.4, 0.6), (2, 0.75, 0.9), (9, 1, 1)])
def test_how_well_a_classifier_tells_the_two(distance, least, most):
    scores = scores_of(float(distance))
    assert least <= scores["shift_accuracy"] <= most
    assert scores["r2_shifted"] == pytest.approx(1)


def test_an_encoder_may_lose_what_it_was_not_trained_on():
    def cut(_, x):
        return x.at[:, 0].min(3.0)

    assert scores_of(0.0, cut)["r2_shifted"] > 0.95
    # Of three factors the first is the same for nearly all points.
    assert scores_of(6.0, cut)["r2_shifted"] == pytest.approx(2 / 3, abs=0.03)
