"""Causal3DIdent in its published format, on a folder generated in it."""

import json

import chex
import jax
import numpy as np
import pytest
from image_files import encode, random_image

from aninfonce_jax import build, runs, workdir
from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.data.causal3dident import CLASSES, Causal3DIdent
from aninfonce_jax.data.datasets import open_dataset
from aninfonce_jax.data.source import DataError, Subset
from aninfonce_jax.placement import Placement, Rows
from aninfonce_jax.report.report import write_report

COUNTS = {"trainset": 12, "testset": 10}


def write_causal3dident(root, counts=COUNTS, side=16):
    """Writes images of every class, and their factors, as they are published."""
    rng = np.random.default_rng(0)
    for folder, count in counts.items():
        for label in range(len(CLASSES)):
            images = root / folder / f"images_{label}"
            images.mkdir(parents=True)
            np.save(root / folder / f"raw_latents_{label}.npy", rng.uniform(-1, 1, (count, 10)))
            digits = int(np.ceil(np.log10(count)))
            for row in range(count):
                pixels = random_image(side, side, seed=int(rng.integers(2**31)))
                (images / f"{row:0{digits}d}.png").write_bytes(encode(pixels, "PNG"))


@pytest.fixture
def root(tmp_path):
    write_causal3dident(tmp_path)
    return tmp_path


def test_images_come_with_their_class_and_factors(root):
    source = open_dataset("causal3dident", root, "train")
    assert len(source) == 7 * 12
    assert source.class_names == CLASSES
    example = source[12 + 11]  # the last of the second class
    assert (example.label, example.id) == (1, "trainset/images_1/11.png")
    assert example.image == (root / "trainset" / "images_1" / "11.png").read_bytes()
    factors = np.load(root / "trainset" / "raw_latents_1.npy")
    np.testing.assert_allclose(source.factors[12 + 11], factors[11], rtol=1e-6)
    assert source.factors.shape == (84, 10)
    # Ten rows need one digit.
    assert Causal3DIdent(root, "test")[9].id == "testset/images_0/9.png"
    chosen = Subset(source, np.array([23, 0]))
    np.testing.assert_array_equal(chosen.factors, source.factors[[23, 0]])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "images_6" / "11.png").unlink(), "11.png is missing, of 12 images"),
        (lambda f: (f / "raw_latents_3.npy").unlink(), "raw_latents_3.npy can't be read"),
        (lambda f: (f / "raw_latents_3.npy").write_bytes(b"x"), "raw_latents_3.npy can't be read"),
        (
            lambda f: np.save(f / "raw_latents_0.npy", np.zeros((12, 9))),
            r"the 10 factors of every teapot, \[n, 10\] floats; got \(12, 9\)",
        ),
        (
            lambda f: np.save(f / "raw_latents_0.npy", np.full((12, 10), np.nan)),
            "not finite",
        ),
        (
            lambda f: np.save(f / "raw_latents_0.npy", np.array([{}]), allow_pickle=True),
            "raw_latents_0.npy can't be read",
        ),
    ],
)
def test_what_is_damaged_is_said(root, damage, message):
    damage(root / "trainset")
    with pytest.raises(DataError, match=message):
        Causal3DIdent(root, "train")


def test_what_is_not_there_is_said(tmp_path):
    with pytest.raises(DataError, match=r"trainset does not exist; expected raw_latents_<class>"):
        Causal3DIdent(tmp_path, "train")
    with pytest.raises(DataError, match="the splits train and test, got 'validation'"):
        Causal3DIdent(tmp_path, "validation")


@pytest.fixture
def matched_config(image_config, root):
    def make(**changes):
        settings = {
            "source__kind": "matched_images",
            "source__dataset": "causal3dident",
            "source__folder": str(root),
        }
        return image_config(**settings | changes)

    return make


def test_second_views_are_images_of_the_same_class(matched_config):
    source = build.build_source(matched_config(source__factor_concentration=(0.5,)))

    def batch(step, rows):
        with source.open_feed(rows, seed=3, step=step) as feed:
            fed = next(feed)
            assert feed.unreadable == {}
        return fed

    fed = batch(2, Rows(8))
    anchor, positive = fed["anchor"], fed["positive"]
    np.testing.assert_array_equal(anchor.label, positive.label)
    assert (anchor.index != positive.index).any()
    # Half of the rows, on another host, are those of the whole.
    part = batch(2, Rows(8, hosts=2, host=1))
    np.testing.assert_array_equal(part["positive"].index, positive.index[4:])
    pairs = source.pairs(jax.random.key(0), fed, 8)
    chex.assert_trees_all_close(pairs.view2, positive.image / np.float32(255), atol=1e-6)
    np.testing.assert_array_equal(pairs.number, anchor.index)
    shapes = jax.tree.map(lambda x: (x.shape, x.dtype), fed)
    assert shapes == jax.tree.map(lambda x: (x.shape, x.dtype), source.fed(8))
    held_out = source.held_out(8)
    assert held_out.train.name == "causal3dident/test"
    sheet = source.preview(jax.random.key(0), 4)
    assert {name: images.shape for name, (images, _) in sheet.columns.items()} == {
        "anchor": (4, 16, 16, 3),
        "positive": (4, 16, 16, 3),
    }
    assert sheet.columns["anchor"][1] == sheet.columns["positive"][1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"source__factor_concentration": (1.0, 2.0)},
            "needs one Λ for all, or one for each of the 10 factors of causal3dident, got 2",
        ),
        ({"source__factor_concentration": ()}, "source.factor_concentration is empty"),
    ],
)
def test_concentrations_that_do_not_fit(matched_config, changes, message):
    with pytest.raises(ConfigError, match=message):
        build.build_source(matched_config(**changes))


def test_a_data_set_without_factors_has_no_matched_pairs(image_config):
    config = image_config(source__kind="matched_images")
    with pytest.raises(ConfigError, match="needs a data set whose factors are known"):
        build.build_source(config)


@pytest.mark.slow  # readouts compile for long
@pytest.mark.parametrize("kind", ["images", "matched_images"])
def test_a_run_is_scored_by_the_factors_of_its_images(image_config, tmp_path, kind):
    write_causal3dident(tmp_path, {"trainset": 6, "testset": 8})
    config = image_config(
        source__kind=kind, source__dataset="causal3dident", source__folder=str(tmp_path)
    )
    experiment = build.build_experiment(config)
    folder = tmp_path / "run"
    runs.train(experiment, folder, placement=Placement.local(1), progress="off")
    scores = json.loads((folder / workdir.EVAL_FILE).read_text())
    assert len(scores["r2_per_factor"]) == 10
    assert scores["r2_kernel"] < 1
    assert scores["r2"] == pytest.approx(np.mean(scores["r2_per_factor"]))
    assert 0 <= scores["probe_accuracy"] <= 1
    page = write_report(folder, tmp_path / "page").read_text()
    assert "What was recovered of the latent factors" in page
