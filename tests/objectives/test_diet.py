"""DIET against its formula in float64, its head, and sources that do not count their examples."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import aninfonce_jax as an
from aninfonce_jax.objectives import Diet
from aninfonce_jax.placement import Placement

EXAMPLES, BATCH, DIM = 11, 40, 3
RNG = np.random.default_rng(0)
EMBEDDINGS = RNG.normal(size=(BATCH, DIM))
CLASSES = RNG.normal(size=(EXAMPLES, DIM))
NUMBERS = RNG.integers(EXAMPLES, size=BATCH)
SOURCE = an.pairs.paired(np.ones((24, 5), np.float32), np.ones((24, 5), np.float32))
ENCODER = an.as_encoder(nn.Dense(DIM))


def formula(embeddings, classes, smoothing):
    total = 0.0
    for z, number in zip(embeddings, NUMBERS, strict=True):
        scores = [float(np.dot(z, w)) for w in classes]
        log_p = scores - np.log(np.sum(np.exp(scores)))
        for place in range(EXAMPLES):
            share = smoothing / EXAMPLES + (1 - smoothing) * (place == number)
            total -= share * log_p[place] / BATCH
    return total


def evaluate(objective, devices, embeddings=EMBEDDINGS, classes=CLASSES):
    placement = Placement.local(devices)

    def loss(embeddings, classes):
        views = placement.constrain(embeddings)
        pairs = an.Pairs(views, 0 * views, number=placement.constrain(jnp.asarray(NUMBERS)))
        key = jax.random.key(0)
        return objective({"head": classes}, lambda x: x, pairs, key, placement)

    arguments = jnp.asarray(embeddings, jnp.float32), jnp.asarray(classes, jnp.float32)
    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))(*arguments)


@pytest.mark.parametrize("devices", [1, 2, 5, 8])
@pytest.mark.parametrize("smoothing", [0.0, 0.8, 1.0])
def test_value_and_gradients_are_those_of_the_formula(smoothing, devices):
    (value, metrics), gradients = evaluate(Diet(smoothing, EXAMPLES), devices)
    np.testing.assert_allclose(value, formula(EMBEDDINGS, CLASSES, smoothing), rtol=1e-5)
    told = np.argmax(EMBEDDINGS @ CLASSES.T, axis=1) == NUMBERS
    np.testing.assert_allclose(metrics["accuracy"], told.mean(), rtol=1e-6)
    for which, index in [(0, (0, 0)), (0, (39, 2)), (1, (0, 1)), (1, (10, 2))]:
        moved = []
        for step in (1e-5, -1e-5):
            arguments = [EMBEDDINGS.copy(), CLASSES.copy()]
            arguments[which][index] += step
            moved.append(formula(*arguments, smoothing))
        expected = (moved[0] - moved[1]) / 2e-5
        np.testing.assert_allclose(gradients[which][index], expected, rtol=1e-3, atol=1e-6)


def test_a_run_has_a_class_for_each_example_to_train_on():
    assert Diet().for_run(SOURCE, ENCODER) == Diet(examples=24)
    objective = Diet(0.5, 24).for_run(SOURCE, ENCODER)
    classes = objective.init(jax.random.key(0), 4)["head"]
    assert classes.shape == (24, 4)
    assert 0.4 < np.abs(classes).max() <= 0.5


class Fresh(an.Source):
    def example(self):
        return jnp.zeros((2, 5))

    def pairs(self, key, fed, batch_size):
        views = jax.random.normal(key, (batch_size, 5))
        return an.Pairs(views, views)


@pytest.mark.parametrize("source", [Fresh(), an.pairs.from_iterator([(np.ones(5), np.ones(5))])])
def test_a_source_that_does_not_count_is_refused_before_anything_is_traced(source):
    settings = {"steps": 2, "batch_size": 8}
    with pytest.raises(ValueError, match=r"which example a pair shows.*does not count"):
        an.Experiment(source, ENCODER, Diet(), optax.adam(1e-3), **settings)
    told = an.Experiment(source, ENCODER, Diet(examples=24), optax.adam(1e-3), **settings)
    with pytest.raises(ValueError, match="DIET needs to know which example a pair shows"):
        an.train(told, progress="off")


def test_another_number_of_examples_is_refused():
    experiment = an.Experiment(
        SOURCE, ENCODER, Diet(examples=7), optax.adam(1e-3), steps=2, batch_size=8
    )
    with pytest.raises(ValueError, match=r"each of examples=7, but there are 24.*set examples=24$"):
        an.train(experiment, progress="off")
    with pytest.raises(ValueError, match="not told how many examples there are; set examples"):
        Diet().init(jax.random.key(0), 3)
