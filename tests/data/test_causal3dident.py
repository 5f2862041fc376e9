"""Causal3DIdent in its published format, on a folder generated in it."""

import json

import numpy as np
import pytest
from image_files import encode, random_image

from aninfonce_jax import build, runs, workdir
from aninfonce_jax.data.causal3dident import CLASSES, Causal3DIdent
from aninfonce_jax.data.datasets import open_dataset
from aninfonce_jax.data.source import DataError, Subset
from aninfonce_jax.placement import Placement
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


@pytest.mark.slow  # readouts compile for long
def test_a_run_is_scored_by_the_factors_of_its_images(image_config, tmp_path):
    write_causal3dident(tmp_path, {"trainset": 6, "testset": 8})
    config = image_config(source__dataset="causal3dident", source__folder=str(tmp_path))
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
