"""g: how latents become observations. The paper's invertible MLP."""

import dataclasses
import functools
from typing import Literal

import jax
import jax.numpy as jnp

from aninfonce_jax.dgp.errors import ProcessError
from aninfonce_jax.types import Array, register_dataclass

Activation = Literal["leaky_relu", "elu", "smooth_leaky_relu", "softplus", "none"]
Init = Literal["uniform", "orthogonal"]

_ACTIVATIONS = ("leaky_relu", "elu", "smooth_leaky_relu", "softplus", "none")
# Entries of the candidate matrices that are held at once while the best is sought.
_CHUNK_ENTRIES = 2**22
# Chunks that one call goes through: about two seconds.
_CHUNKS_PER_CALL = 4
_NEWTON_STEPS = 12


@register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class InvertibleMLP:
    """Square linear layers without bias, an invertible activation between them.

    Attributes:
      weights: [layers, dim, dim]; no layers make the identity.
      activation: between layers, not after the last one.
      slope: of the leaky activations where their input is negative, in (0, 1].

    Example:
      >>> mixing = an.draw_mixing(jax.random.key(0), dim=3, candidates=10)
      >>> x = jnp.array([[0.1, -0.2, 0.3]])
      >>> bool(jnp.allclose(mixing.inverse(mixing(x)), x, atol=1e-4))
      True
    """

    weights: Array
    activation: Activation = dataclasses.field(default="leaky_relu", metadata={"static": True})
    slope: float = dataclasses.field(default=0.2, metadata={"static": True})

    def __post_init__(self) -> None:
        if self.activation not in _ACTIVATIONS:
            names = ", ".join(_ACTIVATIONS)
            raise ProcessError(
                f"Unknown mixing activation {self.activation!r}; choose from {names}."
            )
        if not 0.0 < self.slope <= 1.0:
            raise ProcessError(
                f"slope must be in (0, 1] for an invertible mixing, got {self.slope}."
            )

    def __call__(self, latents: Array) -> Array:
        """Maps latents [n, dim] to observations [n, dim]."""
        x = latents
        for index, weight in enumerate(self.weights):
            x = self._activate(x) if index else x
            x = x @ weight.astype(x.dtype)
        return x

    def inverse(self, observations: Array) -> Array:
        """Maps observations [n, dim] back to latents [n, dim].

        Observations that the mixing can't produce (outside the range of an ELU or a
        softplus) give NaN.
        """
        x = observations
        layers = self.weights.shape[0]
        for index in reversed(range(layers)):
            x = jnp.linalg.solve(self.weights[index].astype(x.dtype).T, x.T).T
            x = self._deactivate(x) if index else x
        return x

    def _activate(self, x: Array) -> Array:
        match self.activation:
            case "leaky_relu":
                return jax.nn.leaky_relu(x, self.slope)
            case "elu":
                return jax.nn.elu(x)
            case "smooth_leaky_relu":
                return self.slope * x + (1.0 - self.slope) * jax.nn.softplus(x)
            case "softplus":
                return jax.nn.softplus(x)
            case _:
                return x

    def _deactivate(self, y: Array) -> Array:
        match self.activation:
            case "leaky_relu":
                return jnp.where(y > 0, y, y / self.slope)
            case "elu":
                return jnp.where(y > 0, y, jnp.log1p(y))
            case "smooth_leaky_relu":
                return _invert_smooth_leaky_relu(y, self.slope)
            case "softplus":
                return y + jnp.log(-jnp.expm1(-y))
            case _:
                return y


def draw_mixing(
    key: Array,
    dim: int,
    layers: int = 3,
    activation: Activation = "leaky_relu",
    slope: float = 0.2,
    init: Init = "uniform",
    candidates: int = 25_000,
) -> InvertibleMLP:
    """Draws a mixing.

    Args:
      key: a random key.
      dim: number of factors.
      layers: number of linear layers; 0 observes the latents themselves.
      activation: between the layers.
      slope: of the leaky activations.
      init: "uniform" keeps the best-conditioned of `candidates` matrices with entries
        uniform in (-1, 1) and unit columns, for each layer; "orthogonal" draws rotations.
      candidates: for init "uniform".

    Raises:
      ValueError: a count is out of range or a name unknown.

    Example:
      >>> mixing = an.draw_mixing(jax.random.key(0), dim=3, candidates=10)
      >>> mixing(jnp.ones((2, 3))).shape
      (2, 3)
    """
    if dim < 1 or layers < 0 or candidates < 1:
        raise ProcessError(
            "A mixing needs dim >= 1, layers >= 0 and candidates >= 1, "
            f"got {dim}, {layers} and {candidates}."
        )
    if init == "uniform":
        weights = _best_conditioned(key, dim, layers, candidates)
    elif init == "orthogonal":
        weights = jax.random.orthogonal(key, dim, (layers,))
    else:
        raise ProcessError(f"Unknown mixing init {init!r}; choose 'uniform' or 'orthogonal'.")
    return InvertibleMLP(weights, activation, slope)


def _best_conditioned(key: Array, dim: int, layers: int, candidates: int) -> Array:
    """Returns the best of `candidates` matrices for each layer, [layers, dim, dim].

    All layers and candidates are drawn and ranked in one call. Where they would not fit in
    memory together, chunks are scanned and the best is carried along; from call to call where
    there are many, so that Python, and with it a request to stop, has its turn.
    """
    if layers == 0:
        return jnp.zeros((0, dim, dim))
    chunk = max(1, min(candidates, _CHUNK_ENTRIES // (layers * dim**2)))
    chunks = -(-candidates // chunk)
    best = (jnp.full(layers, jnp.inf), jnp.zeros((layers, dim, dim)))
    if isinstance(key, jax.core.Tracer):  # in a program of the caller's, which is one call
        return _keep_best(key, best, 0, chunks, chunk, candidates)[1]
    for first in range(0, chunks, _CHUNKS_PER_CALL):
        count = min(_CHUNKS_PER_CALL, chunks - first)
        best = _keep_best(key, best, first, count, chunk, candidates)
        best[1].block_until_ready()
    return best[1]


@functools.partial(jax.jit, static_argnums=(3, 4))
def _keep_best(
    key: Array, best: tuple[Array, Array], first: int, count: int, chunk: int, candidates: int
) -> tuple[Array, Array]:
    """Returns the least condition and its matrix for each layer, of some chunks and the best."""
    layers, dim, _ = best[1].shape

    def keep_best(best: tuple[Array, Array], index: Array) -> tuple[tuple[Array, Array], None]:
        shape = (layers, chunk, dim, dim)
        draws = jax.random.uniform(jax.random.fold_in(key, index), shape, minval=-1.0, maxval=1.0)
        draws = draws / jnp.linalg.norm(draws, axis=-2, keepdims=True)
        # The last chunk may hold more candidates than were asked for; those do not count.
        counts = jnp.arange(chunk) < candidates - index * chunk
        condition = jnp.where(counts[None, :], _squared_condition(draws), jnp.inf)
        winner = jnp.argmin(condition, axis=1)
        layer = jnp.arange(layers)
        better = condition[layer, winner] < best[0]
        weights = jnp.where(better[:, None, None], draws[layer, winner], best[1])
        return (jnp.minimum(best[0], condition[layer, winner]), weights), None

    best, _ = jax.lax.scan(keep_best, best, first + jnp.arange(count))
    return best


def _squared_condition(matrices: Array) -> Array:
    """Returns the squared condition number of each of matrices [..., dim, dim].

    From the Gram matrix: several times faster than singular values, and as precise as it
    needs to be for the well-conditioned ones, which alone can win.
    """
    gram = jnp.einsum("...ij,...ik->...jk", matrices, matrices, precision=jax.lax.Precision.HIGHEST)
    eigenvalues = jnp.linalg.eigvalsh(gram)
    smallest, largest = eigenvalues[..., 0], eigenvalues[..., -1]
    return jnp.where(smallest > 0, largest / smallest, jnp.inf)


def _invert_smooth_leaky_relu(y: Array, slope: float) -> Array:
    """Solves slope·x + (1 - slope)·softplus(x) = y by Newton's method.

    The function is increasing, convex, and above both x and slope·x, so the smaller of y
    and y / slope lies right of the root, and the iteration descends to it.
    """
    x = jnp.minimum(y, y / slope)
    for _ in range(_NEWTON_STEPS):
        value = slope * x + (1.0 - slope) * jax.nn.softplus(x)
        x = x - (value - y) / (slope + (1.0 - slope) * jax.nn.sigmoid(x))
    return x
