"""AugSelf against its formula in float64, what its heads are shown, and sources that don't tell."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import aninfonce_jax as an
from aninfonce_jax.models.heads import DifferenceHeads
from aninfonce_jax.objectives import AugSelf, InfoNCE
from aninfonce_jax.placement import Placement

BATCH, FEATURES, DIM = 40, 6, 3
RNG = np.random.default_rng(0)
VIEWS = RNG.normal(size=(BATCH, 2, FEATURES))
DONE = [
    {"scale": RNG.uniform(size=(BATCH, 2)), "flip": RNG.uniform(size=(BATCH, 1)) > 0.5}
    for _ in "ab"
]
OBJECTIVE = AugSelf(
    temperature=0.5,
    negatives="both",
    weight=0.7,
    predicted=("scale", "flip"),
    width=8,
    layer="early",
    features=FEATURES,
    outputs={"scale": 2, "flip": 1},
)
PARAMS = OBJECTIVE.init(jax.random.key(3), DIM)


class TwoLayers:
    """An encoder that is not trained: what it is shown, and half of that."""

    def __call__(self, x):
        return x[:, :DIM]

    def layers(self, x):
        return {"early": x, "late": self(x)}


def dense(x, layer):
    return x @ np.asarray(layer["kernel"], np.float64) + np.asarray(layer["bias"], np.float64)


def missed(views):
    """What the heads miss, layer by layer in float64."""
    found, both = {}, np.concatenate([views[:, 0], views[:, 1]], axis=1)
    params = PARAMS["head"]["params"]
    for name in ("scale", "flip"):
        x = both
        for place in (1, 2):
            x = np.maximum(0, dense(x, params[f"{name}_hidden{place}"]))
        x = dense(x, params[f"{name}_out"])
        first, second = DONE[0][name], DONE[1][name]
        if name == "scale":
            found[name] = np.mean((x - (first - second)) ** 2)
        else:
            p = 1 / (1 + np.exp(-x))
            found[name] = -np.mean(np.where(first != second, np.log(p), np.log(1 - p)))
    return found


def pairs_of(views, placement):
    done1, done2 = placement.constrain(jax.tree.map(jnp.asarray, DONE))
    views = placement.constrain(jnp.asarray(views, jnp.float32))
    return an.Pairs(views[:, 0], views[:, 1], done1=done1, done2=done2)


def evaluate(devices):
    placement = Placement.local(devices)

    def loss(params, views):
        pairs = pairs_of(views, placement)
        return OBJECTIVE(params, TwoLayers(), pairs, jax.random.key(0), placement)

    views = jnp.asarray(VIEWS, jnp.float32)
    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))(PARAMS, views)


@functools.cache
def contrast_alone():
    one, objective = Placement.local(1), InfoNCE(temperature=0.5, negatives="both")

    def loss(views):
        return objective({}, TwoLayers(), pairs_of(views, one), jax.random.key(0), one)[0]

    return float(jax.jit(loss)(jnp.asarray(VIEWS, jnp.float32)))


@pytest.mark.parametrize("devices", [1, 2, 5, 8])
def test_value_and_gradient_are_those_of_the_formula(devices):
    (value, metrics), gradients = evaluate(devices)
    contrast, expected = contrast_alone(), missed(VIEWS)
    np.testing.assert_allclose(metrics["contrast"], contrast, rtol=1e-5)
    for name in expected:
        np.testing.assert_allclose(metrics[f"missed_{name}"], expected[name], rtol=1e-5)
    np.testing.assert_allclose(value, contrast + 0.7 * sum(expected.values()), rtol=1e-5)
    # Beyond the embedding's columns only heads look: there the gradient is theirs alone.
    for index in [(0, 0, DIM), (39, 1, FEATURES - 1)]:
        moved = [VIEWS.copy(), VIEWS.copy()]
        moved[0][index] += 1e-5
        moved[1][index] -= 1e-5
        up, down = (0.7 * sum(missed(views).values()) for views in moved)
        np.testing.assert_allclose(gradients[1][index], (up - down) / 2e-5, rtol=1e-3, atol=1e-7)
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(gradients[0]))


def test_heads_are_networks_of_their_own():
    heads = DifferenceHeads({"a": 2, "b": 1}, 4)
    x = jnp.ones((3, 5))
    params = heads.init(jax.random.key(0), x, x)
    assert {name: y.shape for name, y in heads.apply(params, x, x).items()} == {
        "a": (3, 2),
        "b": (3, 1),
    }
    assert len(params["params"]) == 6


def scaled(key, rows):
    scale = jax.random.uniform(key, (len(rows), 1))
    return rows * scale, {"scale": scale}


ROWS = np.random.default_rng(1).normal(size=(24, 5)).astype(np.float32)
ENCODER = an.as_encoder(nn.Dense(DIM))


def test_a_run_looks_up_the_sizes_of_the_heads():
    source = an.pairs.augmented(ROWS, scaled)
    objective = AugSelf(predicted=("scale",)).for_run(source, ENCODER)
    assert (objective.layer, objective.features, objective.outputs) == (
        "embedding",
        DIM,
        {"scale": 1},
    )
    with pytest.raises(ValueError, match="there is no layer 'early'; choose embedding"):
        AugSelf(predicted=("scale",), layer="early").for_run(source, ENCODER)
    with pytest.raises(ValueError, match="not told the sizes of its heads"):
        AugSelf().init(jax.random.key(0), DIM)


REFUSED = {
    "views of which nothing is told": (
        an.pairs.paired(ROWS, ROWS),
        ("crop",),
        "AugSelf needs to know what was done to each view, and its source .* does not tell",
    ),
    "an augmentation that is not done": (
        an.pairs.augmented(ROWS, scaled),
        ("scale", "crop"),
        "can't predict 'crop', which its source .* does not do; predicted must be of: scale$",
    ),
    "nothing to predict": (
        an.pairs.augmented(ROWS, scaled),
        (),
        "needs an augmentation to predict",
    ),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_sources_that_do_not_tell_are_refused_before_anything_is_traced(case):
    source, predicted, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        an.Experiment(source, ENCODER, AugSelf(predicted=predicted), optax.adam(1e-3), steps=2)


def test_what_is_not_known_of_its_loss_is_not_said():
    assert OBJECTIVE.chance(8) is None
    assert OBJECTIVE.largest_gain(8) == np.inf
    assert OBJECTIVE.floor(None) is None
