"""A trace holds the steps that were asked for and names their parts, and changes no bit."""

import contextlib
import gzip
import json

import jax
import numpy as np
import pytest
from training.toy_experiment import make_experiment

import aninfonce_jax as an
from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.training.profile import Profile
from aninfonce_jax.training.step import trace_train_step

SCOPES = ("pairs", "encoder", "loss", "optimiser")


def train(folder, **settings):
    placement = an.Placement.local(1)
    return an.train(make_experiment(steps=10), folder, placement=placement, **settings)


def test_a_trace_holds_the_steps_and_their_parts(tmp_path, capfd):
    plain = train(tmp_path / "plain", progress="off")
    # Neither end is one of a call of five steps.
    traced = train(tmp_path / "traced", progress="plain", profile=(3, 7))
    folder = tmp_path / "traced" / workdir_lib.PROFILE_FOLDER
    assert f"profile of steps 3 to 7: {folder}" in capfd.readouterr().err
    for one, other in zip(
        *(jax.tree.leaves(result.state.params) for result in (plain, traced)), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    (planes,) = folder.rglob("*.xplane.pb")
    content = planes.read_bytes()
    for scope in SCOPES:
        assert scope.encode() in content, scope
    assert b"loss)/encoder" in content or b"loss/encoder" in content
    (events,) = folder.rglob("*.trace.json.gz")
    found = json.loads(gzip.decompress(events.read_bytes()))["traceEvents"]
    assert any("PjitFunction(run)" in event.get("name", "") for event in found)


def test_the_parts_have_names_which_change_nothing(monkeypatch):
    experiment, placement = make_experiment(), an.Placement.local(1)
    named = trace_train_step(experiment, placement).lower()
    text = named.as_text(debug_info=True)
    for scope in SCOPES:
        assert f"{scope})/" in text or f"{scope}/" in text, scope
    monkeypatch.setattr(jax, "named_scope", Nameless)
    plain = trace_train_step(experiment, placement).lower()
    assert plain.as_text() == named.as_text()
    assert "optimiser" not in plain.as_text(debug_info=True)


class Nameless(contextlib.ContextDecorator):
    """A scope without a name."""

    def __init__(self, name):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


class Calls:
    def __init__(self, monkeypatch):
        self.made = []
        monkeypatch.setattr(jax.profiler, "start_trace", lambda folder: self.made.append("start"))
        monkeypatch.setattr(jax.profiler, "stop_trace", lambda: self.made.append("stop"))


@pytest.mark.parametrize(
    ("begin", "end", "said"),
    [
        (0, 100, "profile of steps 20 to 30"),
        (25, 100, "profile of steps 25 to 30"),
        (0, 25, "profile of steps 20 to 25"),  # stopped before the trace's end
        (30, 100, "no profile: steps 20 to 30 are done, the run stands at 30"),
        (0, 20, ""),
    ],
)
def test_those_steps_are_traced_that_a_session_takes(monkeypatch, tmp_path, begin, end, said):
    calls, lines, step = Calls(monkeypatch), [], begin
    with Profile((20, 30), last=100, workdir=tmp_path, say=lines.append) as profile:
        while step < end:
            following = profile.limit(step, min(step + 50, end))
            profile.before(step, None)
            step = following
            profile.after(step, None)
    assert "".join(lines).startswith(said)
    assert bool(lines) == bool(said)
    assert calls.made == (["start", "stop"] if said.startswith("profile") else [])


def test_other_processes_trace_nothing(monkeypatch, tmp_path):
    calls = Calls(monkeypatch)
    profile = Profile((0, 5), last=10, workdir=tmp_path, say=print, is_first=False)
    # Its calls end where those of the first do: they are collective.
    assert profile.limit(0, 10) == 5
    profile.before(0, None)
    assert calls.made == []


@pytest.mark.parametrize("steps", [(5, 5), (-1, 5), (5, 11)])
def test_steps_that_a_run_does_not_have_are_refused(tmp_path, steps):
    with pytest.raises(ConfigError, match="must name steps of the run, which ends at 10"):
        Profile(steps, last=10, workdir=tmp_path, say=print)


def test_a_profile_needs_a_folder():
    with pytest.raises(ConfigError, match="pass workdir"):
        an.train(make_experiment(), profile=(0, 5))
