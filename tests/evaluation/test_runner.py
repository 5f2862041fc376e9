import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.config_schema import ConfigError
from aninfonce_jax.evaluation import runner
from aninfonce_jax.mesh import make_mesh
from aninfonce_jax.training.checkpoint import CheckpointError, Restored
from aninfonce_jax.training.objective import build_objective
from aninfonce_jax.training.state import build_experiment
from aninfonce_jax.types import Weights

TRUTH = np.array([25.0, 25.0, 5.0, 5.0])


def test_recovery_scores_tell_content_from_style():
    latents = np.random.default_rng(0).normal(size=(500, 4))
    features = latents @ np.linalg.qr(np.random.default_rng(1).normal(size=(4, 4)))[0]
    scores = runner.recovery_scores(latents, features, TRUTH)
    assert scores["r2_content"] == pytest.approx(1.0)
    assert scores["r2_style"] == pytest.approx(1.0)
    lost = latents * [1, 1, 0, 0] + np.random.default_rng(2).normal(size=(500, 4)) * [0, 0, 1, 1]
    scores = runner.recovery_scores(latents, lost, TRUTH)
    assert scores["r2_content"] == pytest.approx(1.0)
    assert abs(scores["r2_style"]) < 0.1
    assert scores["r2"] == pytest.approx(np.mean(scores["r2_per_factor"]))


def test_equal_concentrations_have_no_style():
    latents = np.random.default_rng(0).normal(size=(100, 3))
    scores = runner.recovery_scores(latents, latents, np.full(3, 5.0))
    assert "r2_style" not in scores
    assert "r2_content" not in scores


class Perfect:
    """An encoder that inverts the mixing exactly."""

    def __init__(self, mixing):
        self.mixing = mixing

    def apply(self, variables, observations):
        del variables
        return self.mixing.inverse(observations)


def test_a_perfect_encoder_scores_perfectly(small_config):
    config = small_config(
        dgp__space="box",
        dgp__marginal="uniform",
        dgp__concentration__high=9.0,
        eval__floor_batches=8,
        objective__concentration_start=9.0,
    )
    built = build_experiment(config)
    experiment = type(built)(
        config,
        built.source,
        Perfect(built.source.mixing),
        build_objective(config.objective, config.dgp.dim),
        built.optimizer,
    )
    evaluate = runner.make_evaluate(experiment, make_mesh(1))
    free = jnp.log(jnp.array([5.0, 9.0, 5.0, 9.0]))
    scores = evaluate(Weights({"encoder": {}, "objective": {"concentration": free}}, {}), full=True)
    assert scores["r2"] == pytest.approx(1.0, abs=1e-6)
    # Each feature carries one factor, but half of Λ̂ sits on features of the other block ...
    np.testing.assert_allclose(scores["concentration"], [9.0, 5.0, 9.0, 5.0], rtol=1e-5)
    assert scores["concentration_error"] == pytest.approx(0.8, abs=1e-5)
    assert scores["concentration_error_sorted"] == pytest.approx(0.0, abs=1e-5)
    # ... and of the map, in the order that Λ̂ claims, half lies off the blocks.
    assert scores["block_energy"] == pytest.approx(0.5)
    assert scores["block_orthogonality"] == pytest.approx(0.5**0.5, abs=1e-3)
    assert scores["loss"] > scores["loss_floor"]


def test_eval_mode_needs_a_run_and_a_checkpoint(small_config, tmp_path):
    with pytest.raises(ConfigError, match="is not the work directory of a run"):
        runner.evaluate_checkpoint(tmp_path, {})
    workdir_lib.claim(tmp_path, small_config())
    with pytest.raises(ConfigError, match="has no checkpoint yet; train it first"):
        runner.evaluate_checkpoint(tmp_path, {})


def test_scores_of_a_later_step_are_not_replaced(tmp_path):
    workdir_lib.write_config(tmp_path, {"seed": 0}, "")
    config_hash = workdir_lib.read_saved(tmp_path).hash
    restored = Restored(4, {}, {"config_hash": config_hash}, {}, ("step 8: damaged, not used",))
    runner._check_replaces(tmp_path, config_hash, restored)
    workdir_lib.write_eval(tmp_path, {"step": 8}, config_hash, None)
    with pytest.raises(CheckpointError, match=r"scores of step 8, .* step 4 \(step 8: damaged"):
        runner._check_replaces(tmp_path, config_hash, restored)
    with pytest.raises(CheckpointError, match="put back the file that does not belong"):
        runner._check_replaces(tmp_path, "another", restored)


def test_scores_along_a_run_use_the_same_data(small_config):
    config = small_config()
    experiment = build_experiment(config)
    evaluate = runner.make_evaluate(experiment, make_mesh(1))
    weights = jax.jit(experiment.init_state)().weights
    scores = evaluate(weights, full=False)
    assert evaluate(weights, full=False) == scores
    assert "loss_floor" not in scores  # the anchors are not uniform


def test_what_is_not_learned_is_not_scored(small_config):
    config = small_config(objective__kind="infonce")
    experiment = build_experiment(config)
    weights = jax.jit(experiment.init_state)().weights
    scores = runner.make_evaluate(experiment, make_mesh(1))(weights, full=True)
    assert not {"concentration", "concentration_error"} & scores.keys()
    assert "block_energy" in scores
