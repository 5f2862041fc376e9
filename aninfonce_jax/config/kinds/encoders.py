"""The kinds of encoders."""

import dataclasses
from typing import Literal

from aninfonce_jax.config.fields import LAYERS, Range, count, field


@dataclasses.dataclass(frozen=True)
class MLPConfig:
    """A multilayer perceptron; what it is given is flattened."""

    kind: Literal["mlp"] = field("mlp", "network")
    widths: tuple[int, ...] = field(
        (),
        "hidden widths; empty: the paper's 10d, 50d, 50d, 50d, 50d, 10d",
        count(1),
        max_items=LAYERS,
    )
    dim: int = field(0, "dimension of the embeddings; 0: the number of latent factors", count(0))
    activation: Literal["leaky_relu", "relu", "gelu", "silu"] = field(
        "leaky_relu", "nonlinearity of the encoder (leaky slope 0.01)"
    )
    init: Literal["looks_linear", "he_normal", "orthogonal", "torch"] = field(
        "looks_linear", "initial weights: a linear map, or random ones; 'torch' is the paper's"
    )
    rotation: bool = field(False, "rotate the embeddings by a trained orthogonal matrix")
    output: Literal["sphere", "learnable_sphere", "box", "learnable_box", "none"] = field(
        "sphere", "normalisation of the embeddings; learnable: with a trained scale"
    )


@dataclasses.dataclass(frozen=True)
class ResNetConfig:
    """A residual network with a projector, for images."""

    kind: Literal["resnet10", "resnet18", "resnet34", "resnet50"] = field("resnet18", "network")
    stem: Literal["cifar", "imagenet"] = field(
        "cifar", "first layers: 3x3, or 7x7 and pooling, which quarter each side"
    )
    width: float = field(
        1.0,
        "multiplies the channels",
        Range(1e-3, 1e3, why="channels are counted in thousands"),
    )
    projector: tuple[int, ...] = field(
        (512,), "hidden widths of the projector", count(1), max_items=LAYERS
    )
    projector_norm: bool = field(True, "BatchNorm in the projector's hidden layers")
    dim: int = field(128, "dimension of the embeddings", count(1))
    dtype: Literal["float32", "bfloat16"] = field(
        "float32", "what it computes in; parameters, norms and loss are float32"
    )
    remat: bool = field(False, "gradients compute part of the blocks again: less memory, more work")


EncoderConfig = MLPConfig | ResNetConfig
