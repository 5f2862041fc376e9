import json

import jax.numpy as jnp
import numpy as np
import pytest
from sphere_pairs import pairs, uniform

import aninfonce_jax as an

CHECKS = [
    "collapse", "injective", "support", "uniform", "pairing", "shape", "one mode", "centre",
    "axes", "constant Λ", "negatives",
]  # fmt: skip


class Tensor:
    """What another library offers: DLPack, and nothing of NumPy's."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **given):
        return self.array.__dlpack__(**given)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_pairs_that_break_nothing():
    alarms = 0
    for seed in range(3):
        found = an.diagnose(*pairs(seed, 2000))
        assert [finding.check for finding in found.findings] == CHECKS
        assert found.violated == ()
        alarms += sum(finding.is_alarm for finding in found.findings)
        np.testing.assert_allclose(found.concentration, [8, 6, 4], rtol=0.2)
    # Each of 33 may be a false one in 5 % of cases; more than five would be as rare as 0.5 %.
    assert alarms <= 5


def test_what_is_asked_for_is_added():
    u, v = pairs(3, 1000)
    found = an.diagnose(u, v, concentration=[8, 6, 4], reference=uniform(9, 500, 3))
    assert [f.check for f in found.findings] == [
        *CHECKS[:-1], "learned Λ", "negatives", "domain shift",
    ]  # fmt: skip


def test_arrays_of_other_libraries_and_an_encoder_give_the_same():
    u, v = pairs(0, 300)
    expected = an.diagnose(u, v).to_dict()
    assert an.diagnose(Tensor(u), Tensor(v)).to_dict() == expected
    assert an.diagnose(u.tolist(), v.tolist()).to_dict() == expected
    u.flags.writeable = False
    assert an.diagnose(u, v).to_dict() == expected
    swapped = an.diagnose(-u, -v, encoder=lambda x: -x)
    assert swapped.to_dict() == expected
    half = [np.asarray(jnp.asarray(x, jnp.bfloat16)) for x in (u, v)]
    np.testing.assert_allclose(an.diagnose(*half).concentration, [8, 6, 4], rtol=0.5)
    single = an.diagnose(jnp.asarray(u, jnp.float32), jnp.asarray(v, jnp.float32))
    np.testing.assert_allclose(single.concentration, expected["concentration"], rtol=1e-3)


def test_order_and_signs_of_dimensions_do_not_matter():
    u, v = pairs(0, 500)
    expected = an.diagnose(u, v)
    moved = an.diagnose(u[:, [2, 0, 1]] * [1, -1, 1], v[:, [2, 0, 1]] * [1, -1, 1])
    np.testing.assert_allclose(moved.concentration, expected.concentration[[2, 0, 1]])
    for check in ("pairing", "shape", "centre", "axes", "constant Λ", "negatives", "collapse"):
        assert moved[check].verdict == expected[check].verdict
        got, wanted = (x[check].evidence[0].effect for x in (moved, expected))
        assert got == pytest.approx(wanted, rel=1e-6)


def test_rows_that_do_not_belong_together_are_seen():
    u, v = pairs(0, 2000)
    found = an.diagnose(u, np.roll(v, 1, axis=0))
    assert found.violated == ("pairing",)
    assert "shuffled or sorted" in str(found)


def test_one_output_that_views_do_not_share_is_named():
    u, v = pairs(0, 2000)
    v[:, 1] = np.random.default_rng(1).permutation(v[:, 1])
    found = an.diagnose(u, v)
    assert found["pairing"].verdict == "violated"
    assert "dimension 1" in found["pairing"].evidence[0].name
    assert np.argmin(found["pairing"].details["shared"]) == 1


def test_views_that_are_the_same_are_refused():
    u, _ = pairs(0, 300)
    with pytest.raises(ValueError, match="the same in all dimensions"):
        an.diagnose(u, u)
    # As an encoder returns them for other batches.
    with pytest.raises(ValueError, match="the same in all dimensions"):
        an.diagnose(u, u + 1e-7 * np.random.default_rng(0).normal(size=u.shape))
    # What never changes takes the length of the rest along: these have it both, of length one.
    angle, turned = np.random.default_rng(1).uniform(0, 2 * np.pi, (2, 300))
    height = u[:, 0]
    ring = np.sqrt(1 - height**2)
    one, other = (
        np.stack([height, ring * np.cos(a), ring * np.sin(a)], axis=1)
        for a in (angle, angle + 0.2 * turned)
    )
    with pytest.raises(ValueError, match="the same in dimension 0: "):
        an.diagnose(one, other)


def test_the_text_and_the_json():
    u, v = pairs(0, 500)
    u[:, 0], v[:, 0] = np.abs(u[:, 0]), np.abs(v[:, 0])
    found = an.diagnose(u, v)
    assert "VIOLATED  injective" in str(found)
    assert "objective.spreading" in str(found)
    read = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert [f["check"] for f in read["findings"]] == CHECKS
    assert "injective" in found.violated
    with pytest.raises(KeyError, match="no check 'folded'"):
        found["folded"]


def test_a_dead_dimension_is_left_out_of_the_rest():
    u, v = pairs(0, 1000)
    wider = [np.concatenate([x, np.full((1000, 1), 1e-6)], axis=1) for x in (u, v)]
    found = an.diagnose(*wider)
    assert found["collapse"].verdict == "violated"
    assert np.isnan(found.concentration[3])
    assert json.dumps(found.to_dict(), allow_nan=False)
    np.testing.assert_allclose(found.concentration[:3], an.diagnose(u, v).concentration, rtol=1e-3)


def test_a_total_collapse_is_said():
    same = np.tile([[1.0, 0.0, 0.0]], (200, 1))
    found = an.diagnose(same, same)
    assert [f.check for f in found.findings] == ["collapse", "independent", *CHECKS[1:4]]
    assert found["collapse"].verdict == "violated"
    assert "no Λ" in str(found)


def test_refusals():
    u, v = pairs(0, 200)
    with pytest.raises(ValueError, match="view1 must have at least 100 rows, got 50"):
        an.diagnose(u[:50], v[:50])
    with pytest.raises(ValueError, match="10 dimensions need at least 200 pairs"):
        an.diagnose(uniform(0, 150, 10), uniform(1, 150, 10))
    with pytest.raises(ValueError, match="one shape"):
        an.diagnose(u, v[:150])
    with pytest.raises(ValueError, match="view2 must be finite, got 1 NaN"):
        an.diagnose(u, np.where(np.arange(600).reshape(200, 3) == 7, np.nan, v))
    with pytest.raises(ValueError, match="no rows of zeros"):
        an.diagnose(u * (np.arange(200) > 0)[:, None], v)
    with pytest.raises(TypeError, match=r"tensor\.detach\(\)"):
        an.diagnose([["a", "b"]] * 200, v)
    with pytest.raises(ValueError, match="one value per dimension"):
        an.diagnose(u, v, concentration=[1.0])
    with pytest.raises(ValueError, match="reference must have 3 dimensions"):
        an.diagnose(u, v, reference=uniform(0, 200, 4))
    with pytest.raises(ValueError, match="batch_negatives must be at least 1"):
        an.diagnose(u, v, batch_negatives=0)


def test_repeated_rows_are_told_and_left_out():
    u, v = pairs(0, 600)
    expected = an.diagnose(u, v)
    order = np.random.default_rng(0).permutation(1200)
    found = an.diagnose(np.tile(u, (2, 1))[order], np.tile(v, (2, 1))[order])
    assert found.violated == ("independent",)
    assert found["independent"].evidence[0].effect == 0.5
    assert found.pairs == 1200
    assert "independent" in str(found)
    for finding in found.findings:
        if finding.check in ("uniform", "support", "axes"):
            one, other = (of[finding.check].evidence[0] for of in (found, expected))
            assert one.effect == pytest.approx(other.effect)
    few = an.diagnose(np.tile(u[:90], (2, 1)), np.tile(v[:90], (2, 1)))
    assert "do not believe their p-values" in few["independent"].advice


def test_one_input_with_several_views_is_no_new_pair():
    u, v = pairs(0, 900)
    found = an.diagnose(np.repeat(u[:300], 3, axis=0), v)
    assert found["independent"].evidence[0].effect == pytest.approx(2 / 3)


def test_a_collapsed_encoder_is_the_cause_of_repeated_rows():
    one = np.ones((300, 3))
    found = an.diagnose(one, one + 0.1 * np.random.default_rng(0).normal(size=one.shape))
    assert found.begin_with == "collapse"
    assert "independent" in found.violated


@pytest.mark.parametrize("scale", [1e200, 1e-200])
def test_scales_do_not_matter(scale):
    u, v = pairs(0, 300)
    assert an.diagnose(u * scale, v * scale)["shape"].evidence[0].effect == pytest.approx(
        an.diagnose(u, v)["shape"].evidence[0].effect
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"encoder": 3}, "encoder must be callable, got int"),
        ({"batch_negatives": "many"}, "batch_negatives must be an int, got 'many'"),
        ({"batch_negatives": float("nan")}, "batch_negatives must be an int, got nan"),
        ({"concentration": ["a", "b", "c"]}, "concentration must be an array of real numbers"),
    ],
)
def test_settings_of_another_type(given, message):
    with pytest.raises(TypeError, match=message):
        an.diagnose(*pairs(0, 300), **given)
