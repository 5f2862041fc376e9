import numpy as np
import pytest

from aninfonce_jax.scores.consistency import run_consistency


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


ROTATION = np.linalg.qr(normal(9, 4, 4))[0]
X = normal(0, 2000, 4) * [3.0, 1.0, 1.0, 0.5]


@pytest.mark.parametrize(
    ("alignment", "map_of"),
    [
        ("linear", normal(8, 4, 6)),
        ("orthogonal", 2.5 * ROTATION),
        ("permutation", np.eye(4)[[2, 0, 3, 1]] * [-1.0, 2.0, -3.0, 0.1]),
    ],
)
def test_what_an_alignment_allows_is_agreement(alignment, map_of):
    assert run_consistency(X, X @ map_of + 7, alignment=alignment).value == pytest.approx(1.0)


def test_each_alignment_allows_less():
    y = X @ ROTATION + 0.3 * normal(1, 2000, 4)
    linear, orthogonal, permutation = (
        run_consistency(X, y, alignment=a).value for a in ("linear", "orthogonal", "permutation")
    )
    assert linear + 1e-3 > orthogonal > permutation + 0.2


def test_r2_by_hand():
    """Noise of as much variance as what can be explained."""
    x = normal(0, 20_000, 1)
    estimate = run_consistency(x, x + normal(1, 20_000, 1))
    assert estimate.value == pytest.approx(0.5, abs=0.03)
    assert estimate.interval[0] < 0.5 < estimate.interval[1]
    # The error of an R² of ½ over n rows is about √(½ / n).
    width = estimate.interval[1] - estimate.interval[0]
    assert width == pytest.approx(2 * 1.96 * np.sqrt(0.5 / 10_000), rel=0.25)


def test_it_is_not_symmetric():
    lost = X * [1, 1, 1, 0]
    assert run_consistency(X, lost).value == pytest.approx(1.0)
    assert run_consistency(lost, X).value < 0.99


def test_strangers_do_not_agree():
    assert run_consistency(X, normal(5, 2000, 4)).value < 0.01


def test_an_offset_does_not_cancel_what_differs():
    assert run_consistency(1e6 + X, 1e6 + X @ ROTATION).value == pytest.approx(1.0, abs=1e-6)


def test_a_mapped_file_is_read_in_chunks(tmp_path):
    np.save(tmp_path / "x.npy", X.astype(np.float32))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    rows = []

    class Counted:
        shape = mapped.shape

        def __len__(self):
            return len(mapped)

        def __getitem__(self, index):
            rows.append(len(range(*index.indices(len(mapped)))))
            return mapped[index]

    estimate = run_consistency(Counted(), X, chunk=100, draws=20)
    assert estimate.value == pytest.approx(1.0)
    assert max(rows) == 100
    # Each row once, and those of the first chunk for their scale.
    assert sum(rows) == 2100


def test_refusals():
    with pytest.raises(ValueError, match="same rows, got 2000 and 10"):
        run_consistency(X, X[:10])
    with pytest.raises(ValueError, match="needs as many dimensions"):
        run_consistency(X, X[:, :2], alignment="orthogonal")
    with pytest.raises(ValueError, match="alignment must be one of"):
        run_consistency(X, X, alignment="affine")
    with pytest.raises(ValueError, match="at least 6 rows"):
        run_consistency(X[:8], X[:8])
    with pytest.raises(ValueError, match="must be finite"):
        run_consistency(X, np.where(X > 2, np.nan, X))
