import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.build import build_experiment
from aninfonce_jax.dgp import conditionals, marginals
from aninfonce_jax.dgp.spaces import Box
from aninfonce_jax.dgp.stream import LatentProcess
from aninfonce_jax.evaluation import runner
from aninfonce_jax.models.encoder import FunctionEncoder
from aninfonce_jax.placement import Placement
from aninfonce_jax.sources.images import ImagePairs
from aninfonce_jax.sources.process import ProcessSource
from aninfonce_jax.sources.source import Known
from aninfonce_jax.training.checkpoint import CheckpointError, Restored
from aninfonce_jax.types import Weights


def scores_of(experiment, full=True):
    weights = jax.jit(experiment.init_state)().weights
    return runner.make_evaluate(experiment, Placement.local(1))(weights, full=full)


def test_a_perfect_encoder_scores_perfectly(small_config):
    config = small_config(
        source__space="box",
        source__marginal="uniform",
        source__concentration__high=9.0,
        eval__held_out_batches=8,
        objective__concentration_start=9.0,
    )
    built = build_experiment(config)
    mixing = built.source.process.mixing
    perfect = FunctionEncoder(lambda key, x: {}, lambda params, x: mixing.inverse(x))
    experiment = dataclasses.replace(built, encoder=perfect)
    evaluate = runner.make_evaluate(experiment, Placement.local(1))
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


def test_scores_along_a_run_use_the_same_data(small_config):
    experiment = build_experiment(small_config())
    evaluate = runner.make_evaluate(experiment, Placement.local(1))
    weights = jax.jit(experiment.init_state)().weights
    scores = evaluate(weights, full=False)
    assert evaluate(weights, full=False) == scores
    assert "loss_floor" not in scores  # the anchors are not uniform


def test_what_is_not_learned_is_not_scored(small_config):
    scores = scores_of(build_experiment(small_config(objective__kind="infonce")))
    assert not {"concentration", "concentration_error"} & scores.keys()
    assert "block_energy" in scores


def test_a_supervised_run_has_its_floor_whatever_the_process(small_config):
    scores = scores_of(build_experiment(small_config(objective__kind="supervised")))
    assert scores["loss_floor"] == 0
    assert scores["loss_above_floor"] == scores["loss"]


class UnknownPairs(ProcessSource):
    known = Known()


def test_pairs_of_which_nothing_is_known_are_scored_by_loss_and_collapse(small_config):
    built = build_experiment(small_config())
    scores = scores_of(dataclasses.replace(built, source=UnknownPairs(built.source.process)))
    assert {"loss", "concentration", "effective_rank_embedding", "spread_min"} <= scores.keys()
    assert not {"r2", "loss_floor", "knn_accuracy", "readouts", "unreadable_examples"} & set(scores)
    assert scores["effective_rank_embedding"] > 1
    assert len(scores["concentration"]) == len(scores["spread"]) == 4


def decode(latents):
    """Images [n, 16, 16, 3] whose channels are the latents and their sum."""
    channels = jnp.concatenate([latents, latents.sum(axis=1, keepdims=True)], axis=1)
    return jnp.broadcast_to(channels[:, None, None, :], (len(latents), 16, 16, 3))


class DecodedLatents(ImagePairs):
    """Images that also have known latents."""

    @property
    def known(self):
        process = LatentProcess(
            Box(2), marginals.Uniform(), conditionals.Normal([4.0, 1.0]), decode
        )
        latents = dataclasses.replace(ProcessSource(process).known.latents, score=None)
        return dataclasses.replace(super().known, latents=latents)


def test_a_source_that_knows_two_kinds_is_scored_by_both(image_config):
    built = build_experiment(image_config(eval__readout_examples=16))
    evaluation = dataclasses.replace(built.evaluation, samples=64)
    source = DecodedLatents(**vars(built.source))
    built = dataclasses.replace(built, source=source, evaluation=evaluation, config=None)
    scores = scores_of(built, full=False)
    assert {"r2", "mcc_pearson", "knn_accuracy", "effective_rank_backbone"} <= scores.keys()
    assert scores["concentration_true"] == [4.0, 1.0]
    # Eight embeddings for two factors: Λ̂ has no counterpart.
    assert "concentration_error" not in scores
    assert len(scores["concentration"]) == 8


def test_scores_of_a_later_step_are_not_replaced(tmp_path):
    workdir_lib.write_config(tmp_path, {"seed": 0}, "")
    config_hash = workdir_lib.read_saved(tmp_path).hash
    restored = Restored(4, {}, {}, {}, ("step 8: damaged, not used",))
    runner._check_replaces(tmp_path, config_hash, restored)
    workdir_lib.write_eval(tmp_path, {"step": 8}, config_hash, None)
    with pytest.raises(CheckpointError, match=r"scores of step 8, .* step 4 \(step 8: damaged"):
        runner._check_replaces(tmp_path, config_hash, restored)
