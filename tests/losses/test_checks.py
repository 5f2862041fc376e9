"""What the losses refuse, and that they say what was expected, what came and what to do."""

import traceback
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, Mesh

from aninfonce_jax.losses import checks
from aninfonce_jax.losses.contrast import aninfonce_loss, infonce_loss, lp_loss
from aninfonce_jax.losses.sharded import over_mesh

VIEW = np.ones((4, 3), np.float32)


def test_parameters_are_converted_and_scalars_broadcast() -> None:
    weights = checks.concentration(25, 3, jnp.float32)
    chex.assert_trees_all_equal(weights, jnp.full(3, 25.0))
    assert weights.dtype == jnp.float32
    tau = checks.temperature(np.float64(0.5), jnp.float32)
    assert (tau.shape, tau.dtype) == ((), jnp.float32)
    assert checks.exponent(3) == 3.0


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ([1.0, 2.0], ValueError, r"a scalar or have shape \(3,\).*got shape \(2,\)"),
        ([1.0, 0.0, 1.0], ValueError, "concentration must be positive and finite, got 0.0"),
        ([1.0, -2.0, 1.0], ValueError, "concentration must be positive and finite, got -2.0"),
        ([1.0, np.nan, 1.0], ValueError, "concentration must be positive and finite, got nan"),
        ([1.0, np.inf, 1.0], ValueError, "natural units"),
        ([True, True, True], TypeError, "concentration must be real numbers, got dtype bool"),
        (1j, TypeError, "concentration must be real numbers, got dtype complex128"),
    ],
)
def test_impossible_concentrations_are_refused(value: object, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        checks.concentration(np.asarray(value), 3, jnp.float32)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0.0, "temperature must be positive and finite, got 0.0"),
        (-1.0, "temperature must be positive and finite, got -1.0"),
        (float("nan"), "temperature must be positive and finite, got nan"),
        (np.ones(2), r"temperature must be a scalar, got shape \(2,\)"),
    ],
)
def test_impossible_temperatures_are_refused(value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        checks.temperature(value, jnp.float32)


@pytest.mark.parametrize(
    ("p", "error", "message"),
    [
        (0, ValueError, "p must be positive and finite, got 0"),
        (-1.0, ValueError, "p must be positive and finite, got -1.0"),
        (float("nan"), ValueError, "p must be positive and finite, got nan"),
        (True, TypeError, "p must be a Python number, got bool"),
        (jnp.float32(2), TypeError, "p must be a Python number, got ArrayImpl"),
    ],
)
def test_impossible_exponents_are_refused(p: object, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        checks.exponent(p)


# --- Numbers that only their type makes impossible ---


@pytest.mark.parametrize("value", [1e39, 1e-46, 1e-40, np.float64(1e200), [1.0, 1e39, 1.0]])
def test_a_parameter_is_checked_in_the_type_that_it_is_used_in(value: Any) -> None:
    message = "concentration must lie between 1.2e-38 and 3.4e.38, the range of float32"
    with pytest.raises(ValueError, match=message):
        checks.concentration(value, 3, jnp.float32)
    with jax.enable_x64(True):
        assert bool(jnp.all(checks.concentration(value, 3, jnp.float64) == np.asarray(value)))


def test_every_parameter_of_the_losses_is_checked_so() -> None:
    with pytest.raises(ValueError, match=r"concentration must lie between.*got 1e\+39"):
        aninfonce_loss(VIEW, VIEW, 1e39)
    with pytest.raises(ValueError, match=r"temperature must lie between.*got 1e-46"):
        infonce_loss(VIEW, VIEW, temperature=1e-46)
    with pytest.raises(ValueError, match=r"hardness must lie between.*got 1e\+39"):
        infonce_loss(VIEW, VIEW, hardness=1e39)
    with pytest.raises(ValueError, match=r"temperature must lie between.*got 1e-46"):
        lp_loss(VIEW, VIEW, p=3, temperature=1e-46)
    for p in (1e39, 1e-46):
        with pytest.raises(ValueError, match="p must lie between"):
            lp_loss(VIEW, VIEW, p=p)
    with pytest.raises(ValueError, match="p must be finite, got a number beyond 1e308"):
        lp_loss(VIEW, VIEW, p=10**400)


# --- Types and shapes ---


def test_a_matrix_of_concentrations_is_told_to_be_its_diagonal() -> None:
    with pytest.raises(
        ValueError, match=r"must be the diagonal of Λ.*\(3, 3\); pass jnp.diag of it"
    ):
        aninfonce_loss(VIEW, VIEW, np.eye(3))


def test_traced_parameters_are_checked_as_far_as_they_are_known() -> None:
    shape = jax.ShapeDtypeStruct
    with pytest.raises(ValueError, match=r"got shape \(2,\)"):
        jax.eval_shape(lambda c: aninfonce_loss(VIEW, VIEW, c), shape((2,), jnp.float32))
    with pytest.raises(TypeError, match="concentration must be real numbers, got dtype complex64"):
        jax.eval_shape(lambda c: aninfonce_loss(VIEW, VIEW, c), shape((3,), jnp.complex64))
    with pytest.raises(TypeError, match="hardness must be a Python number"):
        jax.eval_shape(lambda h: infonce_loss(VIEW, VIEW, hardness=h), shape((), jnp.float32))
    with pytest.raises(TypeError, match="chunk_size must be an int or None"):
        jax.eval_shape(lambda c: infonce_loss(VIEW, VIEW, chunk_size=c), shape((), jnp.int32))


@pytest.mark.parametrize("view", ["abc", None, [[1.0, 2.0], [3.0]], {"a": VIEW}, [["x"]]])
def test_what_is_no_array_is_refused(view: Any) -> None:
    for views in ((view, VIEW), (VIEW, view)):
        with pytest.raises(TypeError, match="must be an array of numbers, got a"):
            aninfonce_loss(*views, 1.0)


@pytest.mark.parametrize("value", ["2", None, [[1.0], [1.0, 2.0]], 10**400, "abc"])
def test_a_parameter_that_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="concentration must be real numbers"):
        aninfonce_loss(VIEW, VIEW, value)
    with pytest.raises(TypeError, match="temperature must be real numbers"):
        infonce_loss(VIEW, VIEW, temperature=value)


@pytest.mark.parametrize("value", [None, 1, "yes", np.ones(2, bool)])
def test_a_flag_is_true_or_false(value: Any) -> None:
    with pytest.raises(TypeError, match="normalize must be True or False"):
        aninfonce_loss(VIEW, VIEW, 1.0, normalize=value)


def test_precision_may_be_named_and_must_exist() -> None:
    assert checks.precision("highest") is lax.Precision.HIGHEST
    assert checks.precision(lax.Precision.HIGH) is lax.Precision.HIGH
    with pytest.raises(ValueError, match="DEFAULT, HIGH, HIGHEST, got 'exact'"):
        aninfonce_loss(VIEW, VIEW, 1.0, precision="exact")


def test_numpy_numbers_are_fine_values() -> None:
    for three in (np.int32(3), np.int64(3), np.uint8(3), np.array(3), 3):
        number = checks.whole_number("chunk_size", three)
        assert number == 3
        assert type(number) is int
    for wrong in (True, np.bool_(True), 3.0, np.float32(3), "3", None, np.array([3, 3])):
        with pytest.raises(TypeError, match="chunk_size must be an int, got"):
            checks.whole_number("chunk_size", wrong)
    for half in (np.float32(0.5), np.float64(0.5), 0.5):
        number = checks.hardness(half)
        assert number == 0.5
        assert type(number) is float
    assert checks.exponent(np.int64(3)) == 3.0
    settings = {"chunk_size": np.int64(2), "hardness": np.float32(0.5), "normalize": np.bool_(True)}
    jax.eval_shape(lambda x: infonce_loss(x, x, strategy="chunked", **settings), VIEW)


# --- Every argument, whatever comes ---

JUNK = [
    None, "x", b"x", 3, 2.5, True, -1, 0, float("nan"), float("inf"), 1e39, 1e-46, 10**400, [], (),
    [1.0, 2.0], [[1.0, 2.0], [3.0]], ("data",), {"a": 1}, object(), np.eye(4), VIEW.astype(complex),
    VIEW.astype(int), VIEW[None], VIEW[:0], np.array("s"), np.array([None]), jnp.float32(2),
    np.float64(2), np.int64(2), range(3), np.ma.array([1.0, 2.0, 3.0]),
]  # fmt: skip


def every_call(mesh: Any) -> dict[str, Any]:
    """Returns, for every argument of the losses, a function that passes a value for it."""
    spread = over_mesh(aninfonce_loss, mesh, "data")
    calls = {
        "view1": lambda x: aninfonce_loss(x, VIEW, 1.0),
        "view2": lambda x: infonce_loss(VIEW, x),
        "concentration": lambda x: aninfonce_loss(VIEW, VIEW, x),
        "temperature": lambda x: infonce_loss(VIEW, VIEW, temperature=x),
        "p": lambda x: lp_loss(VIEW, VIEW, p=x),
        "reduction": lambda x: lp_loss(VIEW, VIEW, p=3, reduction=x),
        "mesh": lambda x: over_mesh(aninfonce_loss, x, "data"),
        "axis": lambda x: over_mesh(aninfonce_loss, mesh, x),
        "spread view": lambda x: spread(VIEW, x, 1.0),
        "spread concentration": lambda x: spread(VIEW, VIEW, x),
        "spread negatives": lambda x: spread(VIEW, VIEW, 1.0, negatives=x),
    }
    names = (
        "negatives",
        "normalize",
        "hardness",
        "axis_name",
        "strategy",
        "chunk_size",
        "precision",
    )
    for name in names:
        calls[name] = lambda x, name=name: aninfonce_loss(VIEW, VIEW, 1.0, **{name: x})
    return calls


def refusal(call: Any, value: Any) -> Exception | None:
    """Returns what a call raises, if it is a kind of error that a caller should see."""
    try:
        jax.eval_shape(lambda: call(value) and None)
    except (TypeError, ValueError) as error:
        return error
    return None


def test_every_argument_is_taken_or_refused_in_one_line_of_ours() -> None:
    mesh = Mesh(np.array(jax.devices()[:1]), ("data",), axis_types=(AxisType.Auto,))
    refused = 0
    for name, call in every_call(mesh).items():
        for value in JUNK:
            error = refusal(call, value)
            if error is None:
                continue
            refused += 1
            told = f"{name}={checks.shown(value)}: {error}"
            assert "\n" not in str(error), told
            assert len(str(error)) < 330, told
            raised_in = traceback.extract_tb(error.__traceback__)[-1].filename
            assert "aninfonce_jax" in raised_in, told
    assert refused > 400
