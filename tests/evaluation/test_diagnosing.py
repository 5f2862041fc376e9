"""A diagnosis of a run's own pairs: which runs have one."""

import jax
import pytest
from image_files import write_mnist
from small_configs import SMALL_VAE

import aninfonce_jax as an
from aninfonce_jax import config as config_lib
from aninfonce_jax.build import build_experiment
from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.evaluation.diagnosing import CLEAN, TRAINING, diagnose_weights, diagnose_workdir


def test_the_latents_of_a_vae_are_diagnosed_as_directions(tmp_path):
    write_mnist(tmp_path, train=130, test=130)
    changes = {"source.folder": str(tmp_path), "source.augment": "crop_only"}
    (config,) = config_lib.resolve({}, SMALL_VAE | changes).runs.values()
    experiment = build_experiment(config)
    assert experiment.objective.has_directions
    weights = jax.jit(experiment.init_state)().weights
    found = diagnose_weights(experiment, weights, an.Placement.local(1))
    # The means alone, of two outputs for each latent.
    assert found.dim == 3
    assert found["support"].verdict == "violated"  # nothing holds their lengths together
    assert {f"domain shift: {name}" for name in (TRAINING, CLEAN)} <= {
        one.check for one in found.findings
    }


def test_embeddings_whose_lengths_count_are_refused(small_config, tmp_path):
    experiment = build_experiment(small_config(objective__kind="lp"))
    with pytest.raises(ConfigError, match="LpLoss of this run compares their lengths too"):
        diagnose_workdir(experiment, tmp_path, an.Placement.local(1))
