from types import SimpleNamespace

import jax
import numpy as np
import pytest

from aninfonce_jax.evaluation.findings import Findings
from aninfonce_jax.evaluation.lost import find_lost_factor
from aninfonce_jax.evaluation.runner import _lost_factor
from aninfonce_jax.sources.source import Known, Latents

UNIFORM = np.random.default_rng(0).normal(size=(4096, 6))
UNIT = UNIFORM / np.linalg.norm(UNIFORM, axis=1, keepdims=True)

FIRST = np.eye(6)[0]


def with_output(values):
    return np.column_stack([values, UNIT[:, 1:]])


def test_an_encoder_that_found_every_factor_is_not_accused():
    rotation = np.linalg.qr(np.random.default_rng(1).normal(size=(6, 6)))[0]
    for embeddings in (UNIT, UNIFORM, UNIT @ rotation, UNIT.astype(np.float32)):
        assert find_lost_factor(embeddings) is None


@pytest.mark.parametrize(
    ("embeddings", "said"),
    [
        # A hemisphere: the size of the factor is there, its sign is not.
        (with_output(np.abs(UNIT[:, 0])), "to one side of the sphere, most of all by output 1"),
        # A square of another factor, centred: both signs are there, but nothing new.
        (with_output(3 * (UNIT[:, 1] ** 2 - 1 / 6)), "of one direction follows from the others"),
    ],
)
def test_a_lost_factor_is_told_without_the_truth(embeddings, said):
    found = find_lost_factor(embeddings)
    assert found.startswith("a factor looks lost: ")
    assert said in found
    assert "objective.spreading" in found


@pytest.mark.parametrize(
    "embeddings",
    [UNIT[:, :1], UNIT[:20], np.zeros((4096, 6)), with_output(np.abs(UNIT[:, 0]))[:40]],
)
def test_where_nothing_can_be_known_nothing_is_said(embeddings):
    assert find_lost_factor(embeddings) is None


def test_what_the_latents_show_themselves_is_no_loss():
    """Latents around a pole lie to one side, and are bunched: an encoder that found all is, too."""
    off_centre = UNIFORM + 2 * FIRST
    assert find_lost_factor(off_centre) is not None
    assert find_lost_factor(off_centre, latents=off_centre) is None
    # What they do not show is spoken of still.
    doubled = np.column_stack([off_centre[:, :5], off_centre[:, 4]])
    assert "outputs 5 and 6 carry the same" in find_lost_factor(doubled, latents=off_centre)
    folded = with_output(np.abs(UNIT[:, 0]))
    assert find_lost_factor(folded, latents=UNIT) == find_lost_factor(folded)


def test_data_whose_factors_nobody_counted_are_not_slandered():
    """What may be the data's own doing is not mentioned; what is, is put as a question."""
    one_sided = UNIT + 0.3 * FIRST
    spare = np.column_stack([UNIT, UNIT[:, :2], np.zeros(len(UNIT))])
    for embeddings in (UNIT, one_sided, spare):
        assert find_lost_factor(embeddings, as_many=False) is None
    found = find_lost_factor(with_output(np.abs(UNIT[:, 0])), as_many=False)
    assert found.startswith("it looks as if a factor may be lost: ")
    assert "how many factors there are is not known here" in found
    assert find_lost_factor(UNIT + 1.5 * FIRST, as_many=False) is not None


def test_off_the_sphere_no_penalties_are_advised():
    lost = np.column_stack([UNIFORM[:, :5], UNIFORM[:, 0] * UNIFORM[:, 1]])
    assert find_lost_factor(UNIFORM, on_sphere=False) is None
    assert "objective." not in find_lost_factor(lost, on_sphere=False)


@pytest.mark.parametrize(
    ("factors", "on_sphere", "begin"),
    [
        (6, True, "a factor looks lost"),
        (6, False, "a factor looks lost"),
        (5, True, "it looks as if"),
        (None, True, "it looks as if"),
        (None, False, None),
        (7, False, None),
    ],
)
def test_outputs_are_held_against_factors_only_if_there_are_as_many(factors, on_sphere, begin):
    def draw(key, count):
        latents = jax.random.normal(key, (count, factors))
        return latents, latents

    known = Known(latents=None if factors is None else Latents(draw))
    objective = SimpleNamespace(compares_directions=on_sphere)
    experiment = SimpleNamespace(source=SimpleNamespace(known=known), objective=objective)
    folded = Findings(embeddings=with_output(np.abs(UNIT[:, 0])))
    said = _lost_factor(experiment, folded)
    assert [text.startswith(begin) for text in said] == ([] if begin is None else [True])
    assert _lost_factor(experiment, Findings()) == []


def test_a_run_knows_what_its_latents_show():
    """The latents of a process reach the warning."""
    folded = with_output(np.abs(UNIT[:, 0]))
    known = Known(latents=Latents(lambda key, count: (jax.random.normal(key, (count, 6)),) * 2))
    experiment = SimpleNamespace(
        source=SimpleNamespace(known=known), objective=SimpleNamespace(compares_directions=True)
    )
    findings = Findings()
    findings.add(Findings(embeddings=folded, latents=folded))
    assert _lost_factor(experiment, findings) == []
