"""Encoders, objectives and optimisers of a config."""

import dataclasses

import jax.numpy as jnp
import optax

from aninfonce_jax.config import kinds
from aninfonce_jax.config.schema import Config
from aninfonce_jax.models.encoder import Encoder, LinenEncoder
from aninfonce_jax.models.heads import OutputNormalization
from aninfonce_jax.models.mlp import MLP, paper_widths
from aninfonce_jax.models.resnet import LAYERS, ProjectedResNet, Projector, ResNet
from aninfonce_jax.objectives.augself import AugSelf
from aninfonce_jax.objectives.contrastive import AnInfoNCE, InfoNCE, LpLoss
from aninfonce_jax.objectives.diet import Diet
from aninfonce_jax.objectives.elbo import Elbo
from aninfonce_jax.objectives.ensemble import Ensemble
from aninfonce_jax.objectives.hard_negatives import HardNegatives
from aninfonce_jax.objectives.objective import Objective
from aninfonce_jax.objectives.sigreg import SIGReg
from aninfonce_jax.objectives.supervised import Supervised
from aninfonce_jax.objectives.tricl import TriCL
from aninfonce_jax.objectives.vicreg import VICReg
from aninfonce_jax.training.optimizer import make_optimizer


def build_encoder(config: Config) -> Encoder:
    """Returns the encoder of a config; an MLP maps onto the space of the latents."""
    match config.encoder:
        case kinds.MLPConfig() as mlp:
            return _build_mlp(mlp, config.source)
        case kinds.ResNetConfig() as resnet:
            return _build_resnet(resnet)


def _build_mlp(config: kinds.MLPConfig, source: kinds.SourceConfig) -> Encoder:
    dim = config.dim
    output = OutputNormalization(config.output)
    if isinstance(source, kinds.AnchorsConfig):
        dim = dim or source.dim
        output = OutputNormalization(config.output, source.radius, source.box_low, source.box_high)
    return LinenEncoder(
        MLP(
            widths=config.widths or paper_widths(dim),
            dim=dim,
            activation=config.activation,
            kernel_init=config.init,
            rotation=config.rotation,
            output=output,
        )
    )


def _build_resnet(config: kinds.ResNetConfig) -> Encoder:
    dtype = jnp.dtype(config.dtype)
    module = ProjectedResNet(
        backbone=ResNet(
            depth=int(config.kind.removeprefix("resnet")),
            stem=config.stem,
            width=config.width,
            dtype=dtype,
            remat=config.remat,
        ),
        projector=Projector(config.projector, config.dim, config.projector_norm, dtype),
    )
    return LinenEncoder(module, LAYERS)


def build_objective(config: kinds.ObjectiveConfig, shape: tuple[int, ...] = ()) -> Objective:
    """Returns the objective of a section for observations of a shape."""
    if isinstance(config, kinds.EnsembleConfig):
        members = tuple(build_objective(own, shape) for own in config.members)
        return Ensemble(members, config.weights)
    settings = dataclasses.asdict(config)
    match settings.pop("kind"):
        case "aninfonce":
            return AnInfoNCE(**settings)
        case "aninfonce_no_l2":
            return AnInfoNCE(**settings, normalize=False)
        case "infonce":
            return InfoNCE(**settings)
        case "hard_negatives":
            return HardNegatives(**settings)
        case "lp":
            return LpLoss(**settings)
        case "tricl":
            return TriCL(**settings)
        case "supervised":
            return Supervised()
        case "elbo":
            return Elbo(shape, **settings)
        case "vicreg":
            return VICReg(**settings)
        case "sigreg":
            return SIGReg(**settings)
        case "augself":
            return AugSelf(**settings)
        case "diet":
            return Diet(**settings)
    raise AssertionError(config)


def build_optimizer(config: kinds.OptimizerConfig, steps: int) -> optax.GradientTransformation:
    """Returns the optimiser of a section for a run of `steps` steps."""
    return make_optimizer(steps=steps, **dataclasses.asdict(config))
