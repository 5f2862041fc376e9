"""Placing, training and evaluating what a config describes: `runs.py`."""

import json

import chex
import jax
import numpy as np
import pytest
from later_schemas import add_field
from stopped_runs import stopping_at_the_first_save

from aninfonce_jax import config as config_lib
from aninfonce_jax import runs
from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.build import build_experiment
from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.stop import Preempted


def read_eval(folder):
    return json.loads((folder / workdir_lib.EVAL_FILE).read_text())


def test_a_run_takes_all_devices_or_as_many_as_it_says(small_config):
    assert runs.place(small_config()).size == 8
    assert runs.place(small_config(train__devices=2)).size == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train__devices": 9}, "train.devices=9 but this machine has 8"),
        ({"train__batch_size": 12}, "train.batch_size=12 can't be divided over 8 devices"),
        ({"train__microbatches": 4}, "train.microbatches=4 can't divide the 2 pairs"),
        ({"objective__strategy": "pallas"}, "'pallas' is for TPU and this is a cpu"),
    ],
)
def test_what_does_not_fit_the_machine_is_refused(small_config, changes, message):
    with pytest.raises(ConfigError, match=message):
        runs.place(small_config(**changes))


def test_what_only_training_needs_does_not_hinder_an_evaluation(small_config):
    config = small_config(objective__strategy="pallas")
    assert runs.place(config, training=False).size == 8


def test_evaluating_needs_a_run_and_a_checkpoint(small_config, tmp_path):
    with pytest.raises(ConfigError, match="is not the work directory of a run"):
        runs.evaluate_config(tmp_path, {})
    workdir_lib.claim(tmp_path, config_lib.to_dict(small_config()))
    with pytest.raises(ConfigError, match="has no checkpoint yet; train it first"):
        runs.evaluate_config(tmp_path, {})


def test_a_run_is_evaluated_again_by_its_own_config_or_in_another_way(small_config, tmp_path):
    config = small_config(train__steps=4)
    result = runs.train(
        build_experiment(config), tmp_path, placement=runs.place(config), progress="off"
    )
    trained = read_eval(tmp_path)
    again = runs.evaluate_config(tmp_path, {})
    assert again["r2"] == trained["r2"] == result.scores["r2"]
    assert "evaluated_with" not in again
    other = runs.evaluate_config(tmp_path, {"eval.samples": 128})
    assert other["evaluated_with"] == read_eval(tmp_path)["evaluated_with"] == {"eval.samples": 128}
    assert other["r2"] != again["r2"]
    assert other["loss"] == again["loss"]
    with pytest.raises(ConfigError, match=r"train\.steps"):
        runs.evaluate_config(tmp_path, {"train.steps": 8})


def test_a_run_that_began_before_a_field_was_known_goes_on(small_config, tmp_path, monkeypatch):
    """Its hash is the one that it began with; a field that it lacks has its default."""
    config = small_config(train__steps=8, eval__every=8)
    whole = runs.train(build_experiment(config), tmp_path / "whole", progress="off")
    older = tmp_path / "older"
    with (
        stopping_at_the_first_save() as stop,
        pytest.raises(Preempted, match="stopped at step 4 of 8"),
    ):
        runs.train(build_experiment(config), older, stop=stop, progress="off")
    before = workdir_lib.read_saved(older)

    add_field(monkeypatch, "train", "colours", 3)
    newer = config_lib.from_dict(config_lib.to_dict(config))
    assert newer.train.colours == 3
    assert config_lib.fingerprint(newer) != before.hash
    other = config_lib.resolve(config_lib.to_dict(newer), {"train.colours": 4}).runs["aninfonce"]
    with pytest.raises(ConfigError, match=r"with another config \(train.colours: 3 -> 4\)"):
        runs.train(build_experiment(other), older, progress="off")
    result = runs.train(build_experiment(newer), older, progress="off")

    chex.assert_trees_all_equal(
        *(jax.tree.map(np.asarray, x.state.params) for x in (result, whole))
    )
    assert result.scores == whole.scores
    saved = workdir_lib.read_saved(older)
    assert saved.hash == before.hash == read_eval(older)["config_hash"]
    assert saved.values["train"]["colours"] == 3
    # A finished one of the older version is as good, to be evaluated and to be trained on.
    scores = runs.evaluate_config(tmp_path / "whole", {})
    assert scores["r2"] == whole.scores["r2"]
    assert "evaluated_with" not in scores
    runs.train(build_experiment(newer), tmp_path / "whole", progress="off")
