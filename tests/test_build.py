import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aninfonce_jax import build
from aninfonce_jax import config as config_lib
from aninfonce_jax.config.kinds import (
    AnInfoNCEConfig,
    AnInfoNCENoL2Config,
    ConcentrationConfig,
    ImagesConfig,
    InfoNCEConfig,
    LpConfig,
    MixingConfig,
    MLPConfig,
    ProcessConfig,
    SupervisedConfig,
)
from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.data.source import DataError
from aninfonce_jax.dgp.spaces import Box, Real, Sphere
from aninfonce_jax.models.encoder import embed
from aninfonce_jax.models.mlp import paper_widths
from aninfonce_jax.objectives.contrastive import AnInfoNCE, InfoNCE, LpLoss
from aninfonce_jax.objectives.supervised import Supervised
from aninfonce_jax.sources.process import ProcessSource

QUICK_MIXING = MixingConfig(candidates=50)
PROCESSES = {
    "paper": ProcessConfig(),
    "shell": ProcessConfig(sampler="paper", shell=0.2, radius=2.0),
    "vmf": ProcessConfig(conditional="vmf", marginal="vmf",
                         concentration=ConcentrationConfig("constant")),
    "bimodal": ProcessConfig(conditional="bimodal", marginal="normal"),
    "box": ProcessConfig(space="box", conditional="generalized_normal", conditional_exponent=3.0),
    "box laplace": ProcessConfig(space="box", box_low=-1.0, marginal="generalized_normal",
                                 conditional="laplace"),
    "real": ProcessConfig(space="real", marginal="laplace", conditional="normal"),
    "real bimodal": ProcessConfig(space="real", marginal="normal", conditional="bimodal"),
}  # fmt: skip


@pytest.mark.parametrize("name", PROCESSES)
def test_a_process_is_built_from_its_section(name):
    config = dataclasses.replace(PROCESSES[name], mixing=QUICK_MIXING, dim=4)
    process = build.build_process(config, jax.random.key(0))
    spaces = {"sphere": Sphere(4, config.radius), "box": Box(4, config.box_low), "real": Real(4)}
    assert process.space == spaces[config.space]
    kinds = {
        "anisotropic": "Anisotropic",
        "vmf": "VonMisesFisher",
        "normal": "Normal",
        "laplace": "Laplace",
        "generalized_normal": "GeneralizedNormal",
        "bimodal": "Bimodal",
        "uniform": "Uniform",
    }
    assert type(process.marginal).__name__ == kinds[config.marginal]
    assert type(process.conditional).__name__ == kinds[config.conditional]
    chex.assert_shape(process.mixing.weights, (3, 4, 4))
    anchors, _ = process.anchors(jax.random.key(1), 16)
    chex.assert_tree_all_finite(anchors)
    if config.conditional == "anisotropic":
        assert process.conditional.method == config.sampler
        assert process.conditional.shell == config.shell
        assert process.conditional.concentration.tolist() == [25.0, 25.0, 5.0, 5.0]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            ProcessConfig(
                sampler="paper", shell=1e-3, concentration=ConcentrationConfig("constant", 1e-6)
            ),
            r"Λ from 1e-06 to 1e-06 with shell = 0\.001 on a sphere.* use method='exact'",
        ),
        (
            ProcessConfig(space="real", conditional="normal"),
            "real space has no uniform distribution",
        ),
        (ProcessConfig(space="box"), "anisotropic conditional is defined on a sphere, got Box"),
        (
            ProcessConfig(concentration=ConcentrationConfig("explicit", values=(1.0, 2.0))),
            "expected 10 values, got 2",
        ),
    ],
)
def test_impossible_processes_are_refused_before_anything_is_sampled(config, message):
    config = dataclasses.replace(config, mixing=MixingConfig(layers=0))
    with pytest.raises(ConfigError, match=f"config.source can't be sampled: .*{message}"):
        build.build_process(config, jax.random.key(0))


def test_the_seed_draws_the_mixing(small_config):
    sources = [build.build_source(small_config(seed=seed)) for seed in (0, 0, 1)]
    assert all(isinstance(source, ProcessSource) for source in sources)
    first, again, other = (source.process.mixing.weights for source in sources)
    chex.assert_trees_all_equal(first, again)
    assert np.abs(first - other).max() > 0.01


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (AnInfoNCEConfig(), AnInfoNCE()),
        (
            AnInfoNCEConfig(
                concentration_start=2.0, concentration_transform="softplus", normalize=False
            ),
            AnInfoNCE(concentration_start=2.0, concentration_transform="softplus", normalize=False),
        ),
        (AnInfoNCENoL2Config(hardness=0.5), AnInfoNCE(normalize=False, hardness=0.5)),
        (
            InfoNCEConfig(temperature=0.5, train_temperature=True, strategy="ring"),
            InfoNCE(temperature=0.5, train_temperature=True, strategy="ring"),
        ),
        (
            LpConfig(exponent=1.0, temperature=0.7, negatives="both", reduction="logmeanexp"),
            LpLoss(exponent=1.0, temperature=0.7, negatives="both", reduction="logmeanexp"),
        ),
    ],
)
def test_objectives_take_over_every_setting(config, expected):
    assert build.build_objective(config) == expected


def test_a_supervised_objective_has_no_settings():
    assert isinstance(build.build_objective(SupervisedConfig()), Supervised)


def test_an_mlp_has_the_papers_widths_and_as_many_outputs_as_there_are_factors(small_config):
    module = build.build_encoder(small_config(encoder__widths=())).module
    assert module.widths == paper_widths(4)
    assert module.dim == 4
    assert build.build_encoder(small_config(encoder__dim=6)).module.dim == 6


@pytest.mark.parametrize(
    ("change", "bounds"),
    [
        ({"encoder__output": "sphere", "source__radius": 3.0}, (3.0, 3.0)),
        (
            {
                "encoder__output": "box",
                "source__box_low": -2.0,
                "source__box_high": 5.0,
                "objective__normalize": False,
            },
            (0.0, 5.0),
        ),
    ],
)
def test_an_mlp_maps_onto_the_space_of_the_latents(small_config, change, bounds):
    space = "sphere" if change["encoder__output"] == "sphere" else "box"
    encoder = build.build_encoder(small_config(source__space=space, **change))
    x = 100 * jax.random.normal(jax.random.key(0), (8, 4))
    variables = encoder.init(jax.random.key(0), x)
    embeddings = np.asarray(embed(encoder, variables, x))
    if space == "sphere":
        np.testing.assert_allclose(np.linalg.norm(embeddings, axis=1), bounds[0], rtol=1e-5)
    else:
        assert embeddings.min() >= -2.0
        assert 4.0 < embeddings.max() <= bounds[1]


def test_a_resnet_shows_its_backbone_and_its_projector(image_config):
    encoder = build.build_encoder(image_config(encoder__kind="resnet18", encoder__dtype="bfloat16"))
    assert encoder.layers == ("backbone", "projector")
    assert encoder.module.backbone.depth == 18
    assert encoder.module.projector.widths == (16,)
    assert encoder.module.projector.dim == 8
    assert encoder.module.backbone.dtype == encoder.module.projector.dtype == jnp.bfloat16


def test_an_mlp_may_take_images(image_config):
    config = dataclasses.replace(image_config(), encoder=MLPConfig(widths=(8,), dim=4))
    assert build.build_experiment(config).embedding_dim == 4


def test_an_experiment_holds_all_that_its_config_says(small_config):
    config = small_config(train__microbatches=2, train__ema_decay=0.5, seed=3, name="mine")
    experiment = build.build_experiment(config)
    assert (experiment.name, experiment.seed) == ("mine", 3)
    assert experiment.steps == config.train.steps
    assert experiment.batch_size == config.train.batch_size
    assert experiment.steps_per_dispatch == config.train.steps_per_dispatch
    assert (experiment.microbatches, experiment.ema_decay) == (2, 0.5)
    assert experiment.evaluation == config.eval
    assert experiment.checkpoint == config.checkpoint
    assert experiment.log == config.log
    assert experiment.description == config_lib.to_dict(config)
    assert experiment.fingerprint == config_lib.fingerprint(config)


def test_images_that_are_not_there_are_a_clear_error(image_config, tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        build.build_experiment(image_config(source__folder=str(tmp_path / "nowhere")))
    with pytest.raises(ConfigError, match="batch_size=64 is more than the 60 images of"):
        build.build_experiment(image_config(train__batch_size=64))


@pytest.mark.parametrize("name", ["cifar100", "tfds:"])
def test_a_data_set_that_nothing_opens_is_not_asked_for_its_folder(image_config, name):
    with pytest.raises(ConfigError, match=f"source.dataset: unknown data set '{name}'; choose mni"):
        build.check_data(image_config(source__dataset=name, source__folder="nowhere"))


def test_a_section_can_be_built_over_splits_of_ones_own(image_folder):
    whole = build.build_image_pairs(ImagesConfig(folder=str(image_folder), image_size=16))
    opened = []

    def open_split(name):
        opened.append(name)
        return whole.train

    section = ImagesConfig(folder="nowhere", train_split="one", test_split="two", view_size=8)
    own = build.build_image_pairs(section, open_split)
    assert opened == ["one", "two"]
    assert own.train is own.test is whole.train
    assert own.spec.size == 8
