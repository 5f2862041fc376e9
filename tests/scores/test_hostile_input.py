"""What every score of arrays does with numbers that are no sound samples."""

import numpy as np
import pytest

import aninfonce_jax as an

Z = np.random.default_rng(0).normal(size=(200, 2))
H = Z[:, ::-1] + 0.1 * np.random.default_rng(1).normal(size=Z.shape)

SCORES = {
    "mig": lambda z, h: an.mig(z, h, bins=5, draws=0),
    "sap": lambda z, h: an.sap(z, h, draws=0),
    "infomec": lambda z, h: an.infomec(z, h, bins=5, draws=0).modularity,
    "dci": lambda z, h: an.dci(z, h, readout="lasso", draws=0).completeness,
    "explicitness": lambda z, h: an.explicitness(z, h, readout="linear"),
    "run_consistency": lambda z, h: an.run_consistency(z, h, draws=0),
    "rankme": lambda z, h: an.rankme(h),
    "alpha_req": lambda z, h: an.alpha_req(np.concatenate([z, h], axis=1)),
    "lidar": lambda z, h: an.lidar(np.stack((z, h), axis=1)),
}


@pytest.mark.parametrize("scale", [1e200, 1e-200])
@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)
def test_a_common_scale_does_not_matter(score, scale):
    assert score(Z * scale, H * scale).value == pytest.approx(score(Z, H).value, abs=1e-9)


@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)
def test_complex_numbers_and_words_are_refused(score):
    for wrong in (Z + 1j, np.full(Z.shape, "a")):
        with pytest.raises(TypeError, match="must be an array of real numbers, got"):
            score(wrong, wrong)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"concentration": [np.nan, 1.0]}, ValueError, "must be positive and finite, got nan"),
        ({"concentration": "ab"}, TypeError, "concentration must be an array of real numbers"),
        ({"bins": 2.5}, TypeError, "bins must be an int, got 2.5"),
        ({"bins": 1}, ValueError, "bins must be at least 2, got 1"),
        ({"draws": 30.5}, TypeError, "draws must be an int, got 30.5"),
    ],
)
def test_settings_of_mig(given, error, message):
    with pytest.raises(error, match=message):
        an.mig(Z, H, **given)


@pytest.mark.parametrize(("chunk", "error"), [(0, ValueError), (-5, ValueError), (2.5, TypeError)])
def test_chunks_that_are_none(chunk, error):
    with pytest.raises(error, match="chunk must be"):
        an.run_consistency(Z, H, chunk=chunk)


def test_lidar_of_views_that_are_the_same():
    with pytest.raises(ValueError, match="views of one object must differ"):
        an.lidar(np.stack((Z, Z), axis=1))
