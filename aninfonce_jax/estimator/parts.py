"""The parts of an estimator's run by their names: encoders, objectives and optimisers."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import optax

from aninfonce_jax.estimator.saved import ModelError
from aninfonce_jax.estimator.sizes import is_number
from aninfonce_jax.models.conv1d import Conv1D
from aninfonce_jax.models.encoder import Encoder, LinenEncoder, as_encoder, embedding_dim
from aninfonce_jax.models.heads import OutputNormalization
from aninfonce_jax.models.mlp import MLP
from aninfonce_jax.models.resnet import LAYERS, ProjectedResNet, Projector, ResNet
from aninfonce_jax.objectives import (
    AnInfoNCE,
    AugSelf,
    Diet,
    InfoNCE,
    LpLoss,
    Objective,
    SIGReg,
    TriCL,
    VICReg,
)
from aninfonce_jax.training.optimizer import make_optimizer
from aninfonce_jax.types import Array

ENCODERS = ("auto", "mlp", "conv1d", "resnet10", "resnet18", "resnet34", "resnet50")
# Both views are anchors and negatives: data are few, and each pair is used twice.
OBJECTIVES: dict[str, Objective] = {
    "aninfonce": AnInfoNCE(negatives="both"),
    "aninfonce_no_l2": AnInfoNCE(negatives="both", normalize=False),
    "infonce": InfoNCE(negatives="both", train_temperature=True),
    "lp": LpLoss(),
}
# A saved model describes these in full, so that whoever loads it need not pass them again.
_WRITTEN = (AnInfoNCE, InfoNCE, LpLoss, TriCL, VICReg, SIGReg, AugSelf, Diet)
OPTIMIZERS = {"muon": 5e-3, "adam": 1e-3, "adamw": 1e-3}

# Hidden layers of an MLP, and the range of their width: wide enough to begin as a linear map that
# loses nothing, narrow enough not to learn a few thousand pairs by heart. A smooth activation
# learns less by heart than one with kinks, and finds mixings of either kind.
_MLP_LAYERS = 4
_MLP_WIDTH = (64, 512)
_MLP_ACTIVATION = "silu"
# What models have that were saved before the network was written down.
_EARLIER_LEAST_WIDTH, _EARLIER_ACTIVATION = 48, "leaky_relu"
_PROJECTOR_WIDTH = 512
# Up to this side, a ResNet must not begin by quartering its images.
_SMALL_SIDE = 64
# Muon's weight decay, which also keeps a network from learning pairs by heart.
_MUON_DECAY = 0.3
# Of our MLP, which begins as a linear map and is slow to bend at the rate of others.
_MLP_MUON_RATE = 1e-2
_CONCENTRATION_RATE = 1e-2


class _ThreeChannels(nn.Module):
    """A ResNet that also takes images of one channel."""

    inner: ProjectedResNet

    def __call__(self, images: Array, *, train: bool = False) -> dict[str, Array]:
        if images.shape[-1] == 1:
            images = jnp.broadcast_to(images, (*images.shape[:-1], 3))
        return self.inner(images, train=train)


def make_encoder(
    given: Any, dim: int, shape: tuple[int, ...], network: Mapping[str, Any] | None = None
) -> Encoder:
    """Returns the encoder of a name, or of whatever `as_encoder` takes.

    Args:
      given: the estimator's argument.
      dim: of the embeddings.
      shape: of an observation.
      network: of an MLP, as `describe_network` returned it; None: chosen.

    Raises:
      ValueError: there is none of the name, or it takes no such observations.
      TypeError: it is no encoder.
    """
    if not isinstance(given, str):
        return as_encoder(given)
    if given not in ENCODERS:
        raise ValueError(
            f"encoder must be one of {', '.join(ENCODERS)}, a Flax module or (init, apply), got "
            f"{given!r}"
        )
    kind = name_for(shape) if given == "auto" else given
    if kind == "mlp":
        network = network or _choose_network(dim, shape, _MLP_WIDTH[0], _MLP_ACTIVATION)
        widths, activation = tuple(network["widths"]), network["activation"]
        output = OutputNormalization("none")
        return LinenEncoder(MLP(widths, dim, activation, "looks_linear", False, output))
    if kind == "conv1d":
        if len(shape) != 2:
            raise ValueError(
                f"encoder='conv1d' takes rows [time, channels], got rows of shape {shape}"
            )
        return LinenEncoder(Conv1D(dim))
    if len(shape) != 3 or shape[-1] not in (1, 3):
        raise ValueError(
            f"encoder={kind!r} takes images [height, width, 1 or 3], got rows of shape {shape}"
        )
    stem = "cifar" if min(shape[:2]) <= _SMALL_SIDE else "imagenet"
    backbone = ResNet(int(kind.removeprefix("resnet")), stem)
    projector = Projector((_PROJECTOR_WIDTH,), dim, norm=True)
    return LinenEncoder(_ThreeChannels(ProjectedResNet(backbone, projector)), LAYERS)


def _choose_network(
    dim: int, shape: tuple[int, ...], least_width: int, activation: str
) -> dict[str, Any]:
    width = min(_MLP_WIDTH[1], max(least_width, 2 * dim, 2 * math.prod(shape)))
    return {"widths": [width] * _MLP_LAYERS, "activation": activation}


def describe_network(encoder: Encoder) -> dict[str, Any]:
    """Returns what an MLP is made of as JSON holds it; {} of any other encoder.

    What a name stands for may be another network in a later version.
    """
    settings: dict[str, Any] = getattr(getattr(encoder, "module", None), "network_settings", {})
    return settings


def earlier_network(dim: int, shape: tuple[int, ...]) -> dict[str, Any]:
    """Returns the network of an MLP that was saved before networks were written down."""
    return _choose_network(dim, shape, _EARLIER_LEAST_WIDTH, _EARLIER_ACTIVATION)


def name_for(shape: tuple[int, ...]) -> str:
    """Returns the name of the encoder that observations of a shape get by default."""
    if len(shape) == 3 and shape[-1] in (1, 3):
        return "resnet18"
    return "conv1d" if len(shape) == 2 and shape[0] > 1 else "mlp"


def is_of_images(given: Any, shape: tuple[int, ...]) -> bool:
    """Whether an encoder is one of ours that standardises images itself."""
    kind = name_for(shape) if given == "auto" else given
    return isinstance(kind, str) and kind.startswith("resnet")


def check_dim(encoder: Encoder, dim: int, shape: tuple[int, ...]) -> None:
    """Raises ValueError if embeddings of rows of a shape have another dimension than `dim`."""
    found = embedding_dim(encoder, jnp.zeros((2, *shape)))
    if found != dim:
        raise ValueError(
            f"the encoder's embeddings have {found} dimensions, but dim={dim}; pass dim={found}, "
            "or change its last layer"
        )


def make_objective(given: Any) -> Objective:
    """Returns the objective of a name, or the object itself."""
    if isinstance(given, Objective):
        return given
    if not isinstance(given, str) or given not in OBJECTIVES:
        raise ValueError(
            f"objective must be one of {', '.join(OBJECTIVES)}, or an an.Objective, got {given!r}"
        )
    return OBJECTIVES[given]


def make_updates(
    given: Any,
    learning_rate: float | None,
    steps: int,
    *,
    is_of_mlp: bool = False,
    is_continued: bool = False,
) -> optax.GradientTransformation:
    """Returns the optimiser of a name for a run of `steps` steps, or the object itself.

    Args:
      given: the estimator's argument.
      learning_rate: of the encoder; None: what is usual for the name.
      steps: of the run.
      is_of_mlp: whether the encoder is our MLP.
      is_continued: whether it goes on from a trained model, at a constant rate.
    """
    if isinstance(given, optax.GradientTransformation):
        return given
    if not isinstance(given, str) or given not in OPTIMIZERS:
        raise ValueError(
            f"optimizer must be one of {', '.join(OPTIMIZERS)}, or one of optax, got {given!r}"
        )
    if learning_rate is not None and not (
        is_number(learning_rate) and 0 < learning_rate < math.inf
    ):
        raise ValueError(f"learning_rate must be a number above 0, got {learning_rate!r}")
    usual = _MLP_MUON_RATE if given == "muon" and is_of_mlp else OPTIMIZERS[given]
    return make_optimizer(
        given,  # type: ignore[arg-type]
        steps=steps,
        learning_rate=usual if learning_rate is None else learning_rate,
        concentration_learning_rate=_CONCENTRATION_RATE,
        schedule="constant" if is_continued else "cosine",
        warmup_steps=0 if is_continued else min(50, steps // 10),
        weight_decay=_MUON_DECAY if given == "muon" else 0.0,
    )


def describe_objective(objective: Objective) -> dict[str, Any] | None:
    """Returns one of our objectives as JSON holds it; None of any other."""
    if type(objective) not in _WRITTEN:
        return None
    assert dataclasses.is_dataclass(objective)
    return {"kind": type(objective).__name__, **dataclasses.asdict(objective)}


def read_objective(described: dict[str, Any]) -> Objective:
    """Undoes `describe_objective`.

    Raises:
      ModelError: it is one of a later version.
    """
    classes = {known.__name__: known for known in _WRITTEN}
    settings: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in described.items()
    }
    kind = settings.pop("kind")
    if kind not in classes:
        raise ModelError(
            f"the model was trained by {kind}, which this version does not know; update the package"
        )
    made: Objective = classes[kind](**settings)
    return made
