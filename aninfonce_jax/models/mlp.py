"""Multilayer perceptrons, and how their weights begin."""

import itertools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from aninfonce_jax.models.heads import ROTATION, OutputNormalization, Rotation
from aninfonce_jax.types import Array

LEAKY_SLOPE = 0.01
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "leaky_relu": lambda x: jnp.where(x > 0, x, LEAKY_SLOPE * x),
    "relu": jax.nn.relu,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
}


def _torch_default(key: Array, shape: tuple[int, ...], dtype: jnp.dtype = jnp.float32) -> Array:
    """Uniform within ±1/√fan_in: what PyTorch gives a linear layer's weights."""
    bound = shape[0] ** -0.5
    return jax.random.uniform(key, shape, dtype, -bound, bound)


KERNEL_INITS = {
    "he_normal": nn.initializers.he_normal(),
    "orthogonal": nn.initializers.orthogonal(2.0**0.5),
    "torch": _torch_default,
}


def looks_linear_kernels(key: Array, widths: tuple[int, ...], slope: float) -> list[Array]:
    """Returns weights [in, out] per layer under which an MLP is, to begin with, linear.

    Hidden units come in pairs of opposite sign, y and -y, and σ(y) - σ(-y) = (1 + slope) y
    for every activation offered here, so each layer reads its input's pairs back as linear
    values. The first layers are random and semi-orthogonal, the last inverts what they do
    together: the network starts as the identity, or its best approximation where a layer is
    narrow.

    A contrastive encoder that starts from a random nonlinear map may fold the latent space
    and never unfold it; one that starts linear starts without folds, though too high a
    learning rate can still make one. The idea of paired units is from Balduzzi et al., "The
    Shattered Gradients Problem" (2017).

    Args:
      key: a random key.
      widths: of the input, the hidden layers and the output.
      slope: of the activation for negative input; 0 for ReLU, GELU and SiLU.
    """
    pairs = [widths[0], *(width // 2 for width in widths[1:-1])]
    linear = []
    composed = jnp.eye(widths[0])
    shapes = itertools.pairwise(pairs)
    for layer_key, (fan_in, fan_out) in zip(
        jax.random.split(key, len(pairs)), shapes, strict=False
    ):
        # Scaled so that a narrower layer keeps the size of what passes through it.
        scale = max(1.0, fan_in / fan_out) ** 0.5
        linear.append(nn.initializers.orthogonal(scale)(layer_key, (fan_in, fan_out)))
        composed = composed @ linear[-1]
    linear.append(jnp.linalg.pinv(composed)[:, : widths[-1]])
    kernels = []
    for index, matrix in enumerate(linear):
        if index > 0:
            matrix = jnp.concatenate([matrix, -matrix]) / (1 + slope)
        if index < len(linear) - 1:
            matrix = jnp.concatenate([matrix, -matrix], axis=1)
        missing = [
            (0, width - size)
            for width, size in zip(widths[index : index + 2], matrix.shape, strict=True)
        ]
        kernels.append(jnp.pad(matrix, missing))
    return kernels


class MLP(nn.Module):
    """A multilayer perceptron with a normalised output.

    Attributes:
      widths: hidden widths.
      dim: dimension of the embeddings.
      activation: a name of `ACTIVATIONS`.
      kernel_init: a name of `KERNEL_INITS`, or "looks_linear".
      rotation: whether a trained rotation follows the last layer.
      output: the last module, from raw outputs to embeddings.
    """

    widths: tuple[int, ...]
    dim: int
    activation: str
    kernel_init: str
    rotation: bool
    output: OutputNormalization

    @property
    def network_settings(self) -> dict[str, Any]:
        """What the network is made of, as JSON holds it."""
        return {"widths": list(self.widths), "activation": self.activation}

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Maps observations [batch, ...], which are flattened, to embeddings [batch, dim]."""
        x = x.reshape(x.shape[0], -1)  # which may be symbolic
        act = ACTIVATIONS[self.activation]
        inits = self._kernel_inits(x.shape[-1])
        for width, kernel_init in zip(self.widths, inits, strict=False):
            x = act(nn.Dense(width, kernel_init=kernel_init)(x))
        x = nn.Dense(self.dim, kernel_init=inits[-1])(x)
        if self.rotation:
            x = Rotation(name=ROTATION)(x)
        return self.output(x)

    def _kernel_inits(self, features: int) -> list[Callable[..., Array]]:
        """Returns an initialiser for every layer."""
        layers = len(self.widths) + 1
        if self.kernel_init != "looks_linear":
            return [KERNEL_INITS[self.kernel_init]] * layers
        if not self.is_initializing():
            return [nn.initializers.zeros] * layers  # not called
        # These weights depend on each other: all are made at once, of the key of `init`.
        widths = (features, *self.widths, self.dim)
        slope = LEAKY_SLOPE if self.activation == "leaky_relu" else 0.0
        key = self.scope.root.rngs["params"].rng
        kernels = looks_linear_kernels(key, widths, slope)
        return [lambda *_, kernel=kernel: kernel for kernel in kernels]


def paper_widths(dim: int) -> tuple[int, ...]:
    """The hidden widths that the paper uses for `dim` latent factors."""
    return (10 * dim, 50 * dim, 50 * dim, 50 * dim, 50 * dim, 10 * dim)
