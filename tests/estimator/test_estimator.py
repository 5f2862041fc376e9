import contextlib
import functools
import itertools
import json
import os
import pickle
import re
import subprocess
import sys

import flax.linen as nn
import jax
import numpy as np
import optax
import pytest
from flax import nnx

import aninfonce_jax as an
from aninfonce_jax.estimator import parts, prepare
from aninfonce_jax.estimator.base import NotFittedError
from aninfonce_jax.estimator.sizes import choose_sizes
from aninfonce_jax.training.session import DivergedError

ROWS, FEATURES, DIM = 72, 5, 3


def two_views(rows=ROWS, seed=0):
    """Views that share what they are made of but for a little noise."""
    rng = np.random.default_rng(seed)
    clean = rng.normal(size=(rows, 2)) @ rng.normal(size=(2, FEATURES))
    return tuple((clean + 0.1 * rng.normal(size=clean.shape)).astype(np.float32) for _ in "ab")


VIEW1, VIEW2 = two_views()


def tiny(**changes):
    # Adam compiles in a fraction of the time that Muon takes.
    settings = {"dim": DIM, "steps": 4, "batch_size": 16, "optimizer": "adam", **changes}
    return an.AnInfoNCE(**settings)


@pytest.fixture(scope="module")
def fitted():
    return tiny().fit(VIEW1, VIEW2)


def test_fit_then_transform(fitted):
    embeddings = fitted.transform(VIEW1)
    assert embeddings.shape == (ROWS, DIM)
    assert embeddings.dtype == np.float32
    assert fitted.concentration_.shape == (DIM,)
    assert (fitted.concentration_ > 0).all()
    assert fitted.n_features_in_ == FEATURES
    assert fitted.batch_size_ == 16
    assert 1 <= fitted.n_iter_ <= 4
    assert len(fitted.loss_curve_) == 4
    assert np.isfinite(fitted.held_out_loss_)
    assert fitted.held_out_loss_ == min(loss for _, loss in fitted.held_out_curve_)


def test_the_same_seed_gives_the_same_model_and_another_one_another(fitted):
    again = tiny(random_state=0, seed=5).fit(VIEW1, VIEW2).transform(VIEW1)
    np.testing.assert_array_equal(fitted.transform(VIEW1), again)
    other = tiny(seed=1).fit(VIEW1, VIEW2).transform(VIEW1)
    assert not np.allclose(again, other)


def test_rows_are_embedded_alike_in_any_company(fitted):
    whole = fitted.transform(VIEW1)
    np.testing.assert_allclose(fitted.transform(VIEW1[3:4])[0], whole[3], rtol=1e-6)
    many = np.concatenate([VIEW1] * 20)
    np.testing.assert_allclose(fitted.transform(many)[-ROWS:], whole, rtol=1e-6)


def test_an_array_is_never_read_whole(fitted):
    """As one that is mapped must not be: what is asked for is a batch at a time."""

    class Recorded:
        lengths: list[int] = []  # noqa: RUF012

        def __len__(self):
            return 3000

        def __getitem__(self, rows):
            part = np.resize(VIEW1, (3000, FEATURES))[rows]
            self.lengths.append(len(part))
            return part

    embeddings = fitted.model_.transform(Recorded())
    assert Recorded.lengths == [1024, 1024, 952]
    np.testing.assert_allclose(embeddings[-3:], fitted.transform(VIEW1)[(3000 - 3) % ROWS :][:3])


def test_training_lowers_the_loss():
    model = tiny(steps=60, optimizer="muon", learning_rate=2e-2).fit(VIEW1, VIEW2)
    assert model.held_out_loss_ < model.held_out_curve_[0][1] - 0.1
    assert model.score(VIEW1, VIEW2) == pytest.approx(-model.held_out_loss_, abs=0.5)


@pytest.mark.parametrize("give", ["source", "iterator", "rule", "labels", "augmented"])
def test_all_that_can_be_fitted(give):
    model = tiny(steps=2)
    match give:
        case "source":
            model.fit(an.pairs.paired(VIEW1, VIEW2))
        case "iterator":
            model.fit(itertools.cycle(zip(VIEW1, VIEW2, strict=True)))
        case "rule":
            model.set_params(pairs=an.pairs.time_lagged).fit(VIEW1)
        case "labels":
            model.set_params(pairs=an.pairs.grouped).fit(VIEW1, np.arange(ROWS) % 30)
        case "augmented":
            model.fit(an.pairs.augmented(VIEW1, lambda key, x: x + jax.random.normal(key, x.shape)))
    assert model.transform(VIEW1).shape == (ROWS, DIM)


class _Network(nnx.Module):
    def __init__(self, rngs):
        self.norm = nnx.BatchNorm(FEATURES, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.out = nnx.Linear(FEATURES, DIM, rngs=rngs)

    def __call__(self, x):
        return self.out(self.dropout(self.norm(x)))


ENCODERS = {
    "linen": lambda: nn.Dense(DIM),
    "nnx": lambda: _Network(nnx.Rngs(0)),
    "functions": lambda: (
        lambda key, x: [jax.random.normal(key, (x.shape[1], DIM))],
        lambda params, x: x @ params[0],
    ),
}


@pytest.mark.parametrize("kind", ENCODERS)
def test_an_encoder_of_ones_own_is_trained_saved_and_loaded(kind, tmp_path):
    encoder = ENCODERS[kind]()
    model = tiny(encoder=encoder, steps=2, optimizer=optax.adam(1e-2)).fit(VIEW1, VIEW2)
    model.save(tmp_path / "model")
    with pytest.raises(ValueError, match=r"pass it: an.load\(path, encoder=...\)"):
        an.load(tmp_path / "model")
    with contextlib.suppress(ValueError):
        an.load(tmp_path / "model", encoder=nn.Dense(DIM + 1))
        raise AssertionError("another encoder was taken")
    loaded = an.load(tmp_path / "model", encoder=encoder)
    np.testing.assert_array_equal(loaded.transform(VIEW1), model.transform(VIEW1))


def test_a_model_keeps_its_network_when_the_default_becomes_another(tmp_path, monkeypatch, fitted):
    with monkeypatch.context() as earlier:
        earlier.setattr(parts, "_MLP_WIDTH", (48, 512))
        earlier.setattr(parts, "_MLP_ACTIVATION", "leaky_relu")
        model = tiny(steps=1).fit(VIEW1, VIEW2)
        model.save(tmp_path / "model")
    embeddings = model.transform(VIEW1)
    loaded = an.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.transform(VIEW1), embeddings)
    assert loaded.model_.encoder.encoder.module.activation == "leaky_relu"
    # Models that were saved before networks were written down all had this one.
    file = tmp_path / "model" / "model.json"
    content = json.loads(file.read_text())
    del content["estimator"]["network"]
    file.write_text(json.dumps(content))
    np.testing.assert_array_equal(an.load(tmp_path / "model").transform(VIEW1), embeddings)
    assert fitted.model_.encoder.encoder.module.activation == "silu"


def scaled(key, rows):
    scale = jax.random.uniform(key, (len(rows), 1))
    return rows * scale, {"scale": scale}


OBJECTIVES = {
    "vicreg": an.objectives.VICReg(),
    "sigreg": an.objectives.SIGReg(directions=4),
    "tricl": an.objectives.TriCL(),
    "diet": an.objectives.Diet(),
    "augself": an.objectives.AugSelf(predicted=("scale",), width=4),
}


@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_rivals_as_objects_that_a_saved_model_remembers(name, tmp_path):
    source = an.pairs.augmented(VIEW1, scaled)
    model = tiny(objective=OBJECTIVES[name], steps=2).fit(source)
    model.save(tmp_path / "model")
    loaded = an.load(tmp_path / "model")
    assert loaded.model_.objective == model.model_.objective
    np.testing.assert_array_equal(loaded.transform(VIEW1), model.transform(VIEW1))


def test_diet_has_a_class_for_every_pair_and_no_loss_on_others():
    model = tiny(objective=an.objectives.Diet(), steps=2).fit(VIEW1, VIEW2)
    assert model.model_.objective.examples == ROWS  # none is set aside
    assert np.isnan(model.held_out_loss_)
    assert model.n_iter_ == 2
    with pytest.raises(ValueError, match="Diet has no loss on pairs that it was not trained on"):
        model.score(VIEW1, VIEW2)
    model.partial_fit(VIEW1, VIEW2)
    fewer = VIEW1[:40], VIEW2[:40]
    for train in (model.partial_fit, model.set_params(warm_start=True).fit):
        with pytest.raises(ValueError, match=r"Diet can't go on.*pass as many as before"):
            train(*fewer)


@pytest.mark.parametrize("objective", ["aninfonce", "infonce", "lp"])
def test_objectives_by_name_and_as_objects(objective):
    model = tiny(objective=objective, steps=1).fit(VIEW1, VIEW2)
    assert np.isfinite(model.transform(VIEW1)).all()
    if objective == "aninfonce":
        np.testing.assert_allclose(np.linalg.norm(model.transform(VIEW1), axis=1), 1, rtol=1e-5)
        own = tiny(objective=an.objectives.AnInfoNCE(hardness=0.5), steps=1).fit(VIEW1, VIEW2)
        assert own.model_.objective.hardness == 0.5


def test_signals_get_convolutions():
    signals = np.random.default_rng(0).normal(size=(40, 16, 2)).astype(np.float32)
    model = tiny(steps=1, dim=4).fit(signals, signals)
    assert type(model.model_.encoder.encoder.module).__name__ == "Conv1D"
    assert model.transform(signals).shape == (40, 4)


@pytest.mark.slow
def test_images_get_a_resnet_and_may_have_any_size():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (20, 8, 8, 3), np.uint8)
    model = tiny(encoder="resnet10", steps=1, dim=4, batch_size=8).fit(images, images)
    assert model.model_.rows.is_bytes
    larger = rng.integers(0, 256, (3, 20, 12, 3), np.uint8)
    assert model.transform(larger).shape == (3, 4)
    several = [larger[0], images[0]]
    np.testing.assert_array_equal(model.transform(several)[1], model.transform(images[:1])[0])


def test_partial_fit_goes_on_and_warm_start_too(fitted):
    model = tiny().partial_fit(VIEW1, VIEW2)
    first = model.transform(VIEW1)
    model.partial_fit(VIEW1, VIEW2)
    assert not np.allclose(first, model.transform(VIEW1))
    with pytest.raises(ValueError, match="X has 2 features, but AnInfoNCE is expecting 5"):
        model.partial_fit(VIEW1[:, :2], VIEW2[:, :2])
    with pytest.raises(ValueError, match=r"goes on with embeddings of 3 dimensions, got dim=4"):
        model.set_params(dim=4).partial_fit(VIEW1, VIEW2)
    warm = pickle.loads(pickle.dumps(fitted)).set_params(warm_start=True)
    before = warm.held_out_loss_
    warm.fit(VIEW1, VIEW2)
    assert warm.held_out_curve_[0][1] == pytest.approx(before, abs=1e-4)


def test_a_workdir_lets_a_fit_go_on_and_can_be_loaded(tmp_path, fitted):
    workdir = tmp_path / "run"
    model = tiny(workdir=workdir).fit(VIEW1, VIEW2)
    np.testing.assert_array_equal(model.transform(VIEW1), fitted.transform(VIEW1))
    again = tiny(workdir=workdir).fit(VIEW1, VIEW2)
    assert again.loss_curve_ == model.loss_curve_
    loaded = an.load(workdir)
    np.testing.assert_array_equal(loaded.transform(VIEW1), model.transform(VIEW1))
    assert loaded.held_out_curve_ == model.held_out_curve_
    with pytest.raises(an.ConfigError, match="another config"):
        tiny(workdir=workdir).fit(VIEW1 + 1, VIEW2)


class Frame:
    """What is asked of a data frame."""

    def __init__(self, values, names):
        self.values, self.columns = values, list(names)

    def __array__(self, dtype=None, copy=None):
        return self.values

    def __len__(self):
        return len(self.values)


def test_a_frame_tells_the_names_of_its_columns(fitted):
    # The other eye's columns may have other names.
    model = tiny(steps=1).fit(Frame(VIEW1, "abcde"), Frame(VIEW2, "ABCDE"))
    assert list(model.feature_names_in_) == list("abcde")
    assert list(model.get_feature_names_out()) == [f"aninfonce{i}" for i in range(DIM)]
    with pytest.raises(ValueError, match="feature names should match"):
        model.transform(Frame(VIEW1, "abcdf"))
    assert not hasattr(fitted, "feature_names_in_")


def nan_at(view, value=np.nan):
    changed = view.copy()
    changed[7, 2] = value
    return changed


CASES = {
    "unequal length": (lambda: tiny().fit(VIEW1, VIEW2[:-1]), "as many rows, got 72 and 71"),
    "NaN": (lambda: tiny().fit(VIEW1, nan_at(VIEW2)), "X must be finite, got NaN"),
    "inf": (lambda: tiny().fit(nan_at(VIEW1, np.inf), VIEW2), "X must be finite, got inf"),
    "fewer rows than a batch": (
        lambda: tiny(batch_size=100).fit(VIEW1, VIEW2),
        "batch_size=100 is more than the 72 pairs there are; lower it",
    ),
    "one view": (lambda: tiny().fit(VIEW1), "fit(X) needs the other views too, fit(view1, view2)"),
    "no labels": (
        lambda: tiny(pairs=an.pairs.grouped).fit(VIEW1),
        "this pairs rule takes labels: fit(X, labels)",
    ),
    "all columns constant": (
        lambda: tiny().fit(np.ones((40, 3)), np.ones((40, 3))),
        "all columns of X are constant",
    ),
    "another dimension": (
        lambda: tiny(encoder=nn.Dense(7)).fit(VIEW1, VIEW2),
        "the encoder's embeddings have 7 dimensions, but dim=3; pass dim=7",
    ),
    "an unknown encoder": (lambda: tiny(encoder="mpl").fit(VIEW1, VIEW2), "encoder must be one of"),
    "an unknown objective": (
        lambda: tiny(objective="x").fit(VIEW1, VIEW2),
        "objective must be one of aninfonce, aninfonce_no_l2, infonce, lp",
    ),
    "an unknown optimiser": (lambda: tiny(optimizer=1).fit(VIEW1, VIEW2), "optimizer must be one"),
    "a resnet of columns": (
        lambda: tiny(encoder="resnet18").fit(VIEW1, VIEW2),
        "takes images [height, width, 1 or 3], got rows of shape (5,)",
    ),
    "no dimension": (lambda: tiny(dim=0).fit(VIEW1, VIEW2), "dim must be a whole number"),
    "a share": (lambda: tiny(held_out=2).fit(VIEW1, VIEW2), "held_out must be a share"),
    "a share in words": (lambda: tiny(held_out="a").fit(VIEW1, VIEW2), "held_out must be a share"),
    "a decay in words": (lambda: tiny(ema_decay="a").fit(VIEW1, VIEW2), "ema_decay must be from 0"),
    "a rate in words": (
        lambda: tiny(learning_rate="a").fit(VIEW1, VIEW2),
        "learning_rate must be a number above 0, got 'a'",
    ),
    "a negative rate": (
        lambda: tiny(learning_rate=-1.0).fit(VIEW1, VIEW2),
        "learning_rate must be a number above 0, got -1.0",
    ),
    "words": (
        lambda: tiny().fit(np.full((40, 2), "a", object), VIEW2[:40, :2]),
        "X must be an array [n, ...] of real numbers, of rows that are all alike: could not",
    ),
    "rows of unequal length": (
        lambda: tiny().fit([[1, 2], [3]], [[1, 2], [3]]),
        "X must be an array [n, ...] of real numbers, of rows that are all alike: ",
    ),
    "another shape": (
        lambda: tiny().fit(VIEW1, VIEW2[:, :4]),
        "observations of one shape, for one encoder, got (5,) and (4,)",
    ),
    "an encoder of whole numbers": (
        lambda: tiny(encoder=(lambda key, x: {}, lambda params, x: x[:, :3].astype(int))).fit(
            VIEW1, VIEW2
        ),
        "an encoder must return embeddings in floating point, to be trained, got int32",
    ),
    "an encoder that loses rows": (
        lambda: tiny(encoder=(lambda key, x: {}, lambda params, x: x[:1, :3])).fit(VIEW1, VIEW2),
        "must return an embedding for each observation, got 1 for 2; keep the first axis",
    ),
    "a second view that is constant": (
        lambda: tiny().fit(VIEW1, np.ones_like(VIEW2)),
        "all columns of view2 are constant: nothing tells one row from another",
    ),
    "images that are all black": (
        lambda: tiny(encoder="resnet10").fit(*np.zeros((2, 20, 8, 8, 3), np.uint8)),
        "all columns of X are constant",
    ),
    "no early stopping in words": (
        lambda: tiny(early_stopping="no").fit(VIEW1, VIEW2),
        "early_stopping must be True or False, got 'no'",
    ),
    "a number for a choice": (
        lambda: tiny(standardise=2).fit(VIEW1, VIEW2),
        "standardise must be True or False, got 2",
    ),
    "a warm start in words": (
        lambda: tiny(warm_start="no").fit(VIEW1, VIEW2),
        "warm_start must be True or False, got 'no'",
    ),
    "a word for how much is told": (
        lambda: tiny(verbose="yes").fit(VIEW1, VIEW2),
        "verbose must be 0 or 1, got 'yes'",
    ),
    "a seed": (lambda: tiny(seed=-1).fit(VIEW1, VIEW2), "seed must be a whole number"),
    "one pair": (lambda: tiny().fit(VIEW1[:1], VIEW2[:1]), "at least 2 are needed"),
    "masked entries": (
        lambda: tiny().fit(np.ma.array(VIEW1, mask=VIEW1 > 1), VIEW2),
        "masked entries, and all are needed; leave out such rows, or fill them in",
    ),
    "columns in another order": (
        lambda: tiny().fit(Frame(VIEW1, "abcde"), Frame(VIEW2, "abced")),
        "the same columns in another order, got 'd' and 'e' in place 3; reorder one of them",
    ),
    "two views and a rule for one": (
        lambda: tiny(pairs=an.pairs.time_lagged).fit(VIEW1, VIEW2),
        "two views were given, and a pairs rule, which makes pairs of the first alone",
    ),
    "NaN of an iterator, later on": (
        lambda: tiny(steps=200).fit(
            (np.full(5, np.nan) if i == 3000 else VIEW1[i % ROWS], VIEW2[i % ROWS])
            for i in range(4000)
        ),
        "must give finite numbers, got NaN or inf in batch 162; leave out or fill in such pairs",
    ),
    "a short iterator": (
        lambda: tiny().fit(zip(VIEW1[:9], VIEW2[:9], strict=True)),
        "batch_size=16 is more than the 9 pairs of the iterator",
    ),
}


TYPES = {
    "an encoder of two outputs": (
        lambda: tiny(encoder=(lambda key, x: {}, lambda params, x: (x[:, :3], x))).fit(
            VIEW1, VIEW2
        ),
        "the encoder must return an array, embeddings [batch, dim], got tuple; return them alone",
    ),
    "a rule that takes nothing": (
        lambda: tiny(pairs=lambda: None).fit(VIEW1),
        "pairs must be a function of X that makes pairs of it",
    ),
    "an augmentation of NumPy": (
        lambda: tiny().fit(an.pairs.augmented(VIEW1, lambda key, x: np.asarray(x))),
        "an augmentation runs on the device, so it must use jax.numpy",
    ),
    "an augmentation that returns nothing": (
        lambda: tiny().fit(an.pairs.augmented(VIEW1, lambda key, x: None)),
        "an augmentation must return rows, or rows and what was done to each",
    ),
}


@pytest.mark.parametrize("case", TYPES)
def test_what_is_of_another_type_gets_one_line(case):
    act, expected = TYPES[case]
    with pytest.raises(TypeError, match=re.escape(expected)) as error:
        act()
    assert "\n" not in str(error.value)


def test_a_loss_that_is_not_finite_says_what_to_do_and_names_no_folder_that_is_gone():
    with pytest.raises(DivergedError, match="not finite; pass a lower learning_rate") as error:
        tiny(learning_rate=1e30, held_out=0).fit(VIEW1, VIEW2)
    assert "saved in" not in str(error.value)


@pytest.mark.parametrize("case", CASES)
def test_bad_input_gets_one_line(case):
    act, expected = CASES[case]
    with pytest.raises(ValueError, match=re.escape(expected)) as error:
        act()
    assert "\n" not in str(error.value)


def sizes_of(**changes):
    return functools.partial(
        choose_sizes, **{"batch_size": None, "steps": 1, "held_out": 0.1, "devices": 1, **changes}
    )


@pytest.mark.parametrize(
    ("pairs", "columns", "others"),
    [(40, 16, 16), (800, 100, 100), (6000, 128, 512), (10**7, 512, 512), (None, 512, 512)],
)
def test_batches_of_a_few_thousand_rows_of_columns_are_small(pairs, columns, others):
    assert sizes_of(is_columns=True)(pairs).batch_size == columns
    assert sizes_of(is_columns=False)(pairs).batch_size == others


def test_a_batch_may_be_larger_than_the_sample_of_an_iterator(monkeypatch):
    monkeypatch.setattr(prepare, "_SAMPLE", 8)
    source = prepare.as_source(zip(VIEW1, VIEW2, strict=True), None, None)
    sizes = sizes_of(batch_size=16)
    made = prepare.prepare(source, names=None, encoder="mlp", dim=3, standardises=True, sizes=sizes)
    assert made.sizes.batch_size == 16


def test_bad_input_of_transform_gets_one_line(fitted):
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        tiny().transform(VIEW1)
    with pytest.raises(ValueError, match="X has 4 features, but AnInfoNCE is expecting 5"):
        fitted.transform(VIEW1[:, :4])
    with pytest.raises(ValueError, match="got NaN in rows 0 to 71"):
        fitted.transform(nan_at(VIEW1))
    for wrong, expected in (
        (3, "rows of shape (5,) are expected, got 3"),
        (None, "rows of shape (5,) are expected, got None"),
        ([[1, 2], [3]], "rows must all have shape (5,): "),
    ):
        with pytest.raises(ValueError, match=re.escape(expected)):
            fitted.model_.transform(wrong)


def test_constant_columns_are_told():
    views = [np.column_stack([view, np.ones(ROWS)]) for view in (VIEW1, VIEW2)]
    with pytest.warns(UserWarning, match=r"1 of 6 columns of X are constant \(5\)"):
        model = tiny(steps=1).fit(*views)
    assert np.isfinite(model.transform(views[0])).all()


def test_without_scikit_learn_all_is_there():
    code = """
import sys
sys.modules["sklearn"] = None
import numpy as np, aninfonce_jax as an
x = np.random.default_rng(0).normal(size=(40, 3))
model = an.AnInfoNCE(dim=2, steps=1, batch_size=8)
assert repr(model) == "AnInfoNCE(dim=2, steps=1, batch_size=8)"
assert model.set_params(seed=3).get_params()["seed"] == 3
assert model.fit_transform(x, x + 0.1).shape == (40, 2)
assert list(model.get_feature_names_out()) == ["aninfonce0", "aninfonce1"]
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("space", "positives", "seed"),
    [
        ("Sphere(4)", "Anisotropic(np.array([25.0, 25.0, 5.0, 5.0]))", 0),
        ("Sphere(4)", "Anisotropic(np.array([25.0, 25.0, 5.0, 5.0]))", 1),
        ("Box(4, low=-1.0, high=1.0)", "Normal(np.array([100.0, 60.0, 30.0, 15.0]))", 0),
    ],
)
def test_default_arguments_find_all_factors_of_a_nonlinear_process(space, positives, seed):
    """6,000 pairs of four factors, seen through an invertible MLP.

    In a process of its own, which has the one device of a CPU and compiles as users do.
    """
    code = f"""
import jax, numpy as np, aninfonce_jax as an
process = an.LatentProcess(
    an.{space},
    an.marginals.Uniform(),
    an.conditionals.{positives},
    an.draw_mixing(jax.random.key({seed}), 4),
)
pairs = an.sample_pairs(jax.random.key(100 + {seed}), process, 6000)
model = an.AnInfoNCE(dim=4, seed={seed}).fit(np.asarray(pairs.view1), np.asarray(pairs.view2))
fresh = an.sample_pairs(jax.random.key(999 + {seed}), process, 4096)
r2 = an.linear_r2_per_factor(fresh.latents1, model.transform(np.asarray(fresh.view1)))
print("R² of each factor:", r2)
assert np.min(r2) > 0.97, r2
"""
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"XLA_FLAGS": ""})
