"""Runs that start with the parameters of another one."""

import jax
import numpy as np
import pytest

from aninfonce_jax import build, runs, warm_start, workdir
from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.placement import Placement
from aninfonce_jax.training.trained import latest_weights

PLACEMENT = Placement.local(1)


@pytest.fixture(scope="module")
def origin(small_config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("origin") / "run"
    experiment = build.build_experiment(small_config())
    runs.train(experiment, folder, placement=PLACEMENT, progress="off")
    return folder


def begun(config):
    """Returns the state before the first step, and what the run would start with by itself."""
    experiment = build.build_experiment(config)
    plain = experiment.init_state()
    return experiment.warm_start(experiment.init_state(), PLACEMENT), plain


def test_parameters_are_those_that_the_other_run_was_scored_by(small_config, origin):
    config = small_config(train__start_from=str(origin))
    state, plain = begun(config)
    old = build.build_experiment(small_config())
    _, weights = latest_weights(workdir.locate(str(origin)), old, PLACEMENT)
    for found in (state.weights, state.average):
        jax.tree.map(np.testing.assert_array_equal, found, weights)
    jax.tree.map(np.testing.assert_array_equal, state.opt_state, plain.opt_state)
    assert int(state.step) == 0


def test_a_run_trains_on_from_there(small_config, origin, tmp_path):
    config = small_config(train__start_from=str(origin))
    result = runs.train(
        build.build_experiment(config), tmp_path / "on", placement=PLACEMENT, progress="off"
    )
    assert int(result.state.step) == config.train.steps
    rows = workdir.read_metrics(tmp_path / "on" / workdir.METRICS_FILE)
    before = workdir.read_metrics(origin / workdir.METRICS_FILE)
    first = next(row for row in rows if row["split"] == "eval")
    last = [row for row in before if row["split"] == "eval"][-1]
    assert first["step"] == 0
    np.testing.assert_allclose(first["r2"], last["r2"], rtol=1e-5)


def test_another_objective_starts_anew(small_config, origin, capsys):
    config = small_config(train__start_from=str(origin), objective__kind="infonce")
    state, plain = begun(config)
    assert state.params["objective"] == plain.params["objective"] == {}
    assert "the objective starts anew" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"encoder__widths": (16, 8)},
            r"\(16,\) there and \(8,\) here",
        ),
        ({"encoder__widths": (16, 16, 4)}, r"\(4,\) there and \(4,\) here|missing there and"),
    ],
)
def test_another_encoder_is_refused(small_config, origin, changes, message):
    with pytest.raises(ConfigError, match=message):
        begun(small_config(train__start_from=str(origin), **changes))


def test_a_run_that_is_not_there(small_config, origin, tmp_path, capsys):
    with pytest.raises(ConfigError, match=r"train\.start_from: "):
        build.check_data(small_config(train__start_from=str(tmp_path / "none")))
    build.check_data(small_config(train__start_from=str(origin)))
    assert capsys.readouterr().err == ""
    build.check_data(small_config(train__start_from=str(origin), seed=3))
    assert "another mixing" in capsys.readouterr().err
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "config.json").write_bytes((origin / "config.json").read_bytes())
    with pytest.raises(ConfigError, match="no checkpoint yet"):
        warm_start.check(small_config(train__start_from=str(tmp_path / "begun")))
