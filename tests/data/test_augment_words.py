import dataclasses

import jax.numpy as jnp
import pytest

from aninfonce_jax.data.augment import neutral_params
from aninfonce_jax.data.augment_words import applied_steps, describe_params

ALL = {
    "cropped": True, "box": [0.0, 0.25, 0.5, 1.0], "flipped": True, "jittered": True,
    "brightness": 1.32, "contrast": 0.7, "saturation": 1.1, "hue": -0.071, "greyed": True,
    "blurred": True, "sigma": 0.5, "solarised": True,
}  # fmt: skip


def one_sample(**changes):
    values = {name: jnp.asarray([value]) for name, value in changes.items()}
    return dataclasses.replace(neutral_params(1), **values)


def test_each_operation_is_said_in_words_and_in_the_order_of_application():
    (words,) = applied_steps(one_sample(**ALL), aspect=1.5)
    assert words == [
        "crop 38%, aspect 1.00",
        "flipped",
        "brightness ×1.32",
        "contrast ×0.70",
        "saturation ×1.10",
        "hue −0.07 turns",
        "grey",
        "blur σ 0.50 px",
        "solarised",
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, []),
        ({"brightness": 1.5, "sigma": 2.0, "box": [0.0, 0.0, 0.5, 0.5]}, []),
        ({"jittered": True, "hue": 0.07}, ["hue +0.07 turns"]),
        ({"greyed": True}, ["grey"]),
    ],
)
def test_only_what_was_applied_is_said(changes, words):
    assert applied_steps(one_sample(**changes), aspect=1.0) == [words]


def test_a_caption_has_few_short_lines_and_breaks_no_phrase():
    (caption,) = describe_params(one_sample(**ALL), aspect=1.5)
    lines = caption.split("\n")
    assert max(map(len, lines)) <= 35
    phrases = [phrase for line in lines for phrase in line.split(" · ")]
    assert phrases == applied_steps(one_sample(**ALL), aspect=1.5)[0]
    assert len(lines) == 4
    assert describe_params(one_sample(), aspect=1.0) == ["nothing"]


def test_every_sample_of_a_batch_gets_a_caption():
    params = dataclasses.replace(neutral_params(2), flipped=jnp.array([False, True]))
    assert describe_params(params, aspect=1.0) == ["nothing", "flipped"]
