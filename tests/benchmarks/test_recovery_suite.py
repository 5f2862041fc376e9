"""What the suite says of lost factors, on encoders that lost them in known ways."""

import importlib.util
import pathlib

import numpy as np
import pytest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "recovery.py"
DIM, SAMPLES = 6, 6000
LAST = DIM - 1
RNG = np.random.default_rng(0)
Z = RNG.normal(size=(SAMPLES, DIM))
Z /= np.linalg.norm(Z, axis=1, keepdims=True)
NOISE = RNG.normal(size=SAMPLES) / np.sqrt(DIM)
TURN = np.linalg.qr(RNG.normal(size=(DIM, DIM)))[0]


@pytest.fixture(scope="module")
def recovery():
    spec = importlib.util.spec_from_file_location("recovery", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def with_last(values):
    return np.column_stack([Z[:, :LAST], values])


@pytest.mark.parametrize("turn", [np.eye(DIM), TURN])
@pytest.mark.parametrize(
    ("last", "best", "fate"),
    [
        (np.abs(Z[:, LAST]), 0.0, "folded"),
        (np.abs(Z[:, LAST] - 0.2), 0.0, "folded"),  # away from the equator
        (Z[:, 0] * Z[:, 1], 0.95, "function of others"),
        (Z[:, 0] * Z[:, 1] * Z[:, 2], 0.0, "function of others"),
        (NOISE, 0.5, "never learned"),
        (NOISE, 0.95, "given up"),
    ],
)
def test_what_an_output_holds_in_place_of_a_factor(recovery, last, best, fate, turn):
    found = recovery.fate_of_lost(Z, with_last(last) @ turn, np.full(DIM, best))
    assert found == {str(LAST): fate}


def test_two_factors_on_one_output_are_merged(recovery):
    features = with_last(NOISE)
    features[:, 0] = Z[:, 0] + Z[:, LAST]
    found = recovery.fate_of_lost(Z, features @ TURN, np.full(DIM, 0.5))
    assert found == {
        "0": "merged with 5, never learned",
        "5": "merged with 0, never learned",
    }


def test_an_encoder_that_found_every_factor_has_lost_none(recovery):
    assert recovery.fate_of_lost(Z, Z @ TURN, np.ones(DIM)) == {}
