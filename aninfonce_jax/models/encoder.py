"""What an encoder is to a run, and adapters that make one of other people's networks.

    an.as_encoder(linen_module)
    an.as_encoder(nnx_module)
    an.as_encoder((init, apply))

An encoder is a pair of pure functions. `init` returns variables by collection, with what is
trained under "params"; everything else (running statistics, counters) is *state*, which a
training pass returns anew. `apply` returns named layers, so that an evaluation can also look
at what lies before the embedding.
"""

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import nnx

from aninfonce_jax.types import Array, PyTree

PARAMS = "params"
EMBEDDING = "embedding"
# The key of a training pass feeds these streams of a Linen module.
_NOISE = ("dropout", "noise")

Layers = Mapping[str, Array]


class Encoder(Protocol):
    """From observations to embeddings."""

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of what `apply` returns, from early to late; the last is the embedding."""
        ...

    def init(self, key: Array, observations: Array) -> dict[str, PyTree]:
        """Returns the variables by collection for observations [batch, ...]; may be traced."""
        ...

    def apply(
        self,
        variables: Mapping[str, PyTree],
        observations: Array,
        *,
        train: bool,
        key: Array | None = None,
    ) -> tuple[Layers, dict[str, PyTree]]:
        """Maps observations [batch, ...] to layers [batch, features] each; may be traced.

        Args:
          variables: by collection.
          observations: as a source gives them.
          train: whether this is a training pass.
          key: of the noise of a training pass, for encoders that have any.

        Returns:
          The layers, and the collections other than "params": new ones in a training pass.
        """
        ...


class EvaluationPass:
    """Encodes as in evaluation.

    Args:
      encoder: of the observations.
      variables: by collection.
    """

    def __init__(self, encoder: Encoder, variables: Mapping[str, PyTree]) -> None:
        self._encoder, self._variables = encoder, variables

    def __call__(self, observations: Array) -> Array:
        """Returns embeddings [batch, dim]."""
        return self.layers(observations)[self._encoder.layers[-1]]

    def layers(self, observations: Array) -> Layers:
        """Returns every layer by its name, [batch, features] each."""
        return self._encoder.apply(self._variables, observations, train=False)[0]


def embed(encoder: Encoder, variables: Mapping[str, PyTree], observations: Array) -> Array:
    """Returns embeddings [batch, dim], as in evaluation."""
    return EvaluationPass(encoder, variables)(observations)


def layer_widths(encoder: Encoder, example: Array) -> dict[str, int]:
    """Returns how many features each layer has, from early to late, without computing any.

    Raises:
      ValueError: embeddings are not [batch, dim].
    """

    def layers(observations: Array) -> Layers:
        variables = encoder.init(jax.random.key(0), observations)
        return EvaluationPass(encoder, variables).layers(observations)

    found = jax.eval_shape(layers, example)
    shape, dtype = found[encoder.layers[-1]].shape, found[encoder.layers[-1]].dtype
    if len(shape) != 2:
        raise ValueError(
            f"an encoder must return embeddings [batch, dim], got shape {shape} for observations "
            f"of shape {example.shape}; flatten or pool its output"
        )
    if shape[0] != len(example):
        raise ValueError(
            f"an encoder must return an embedding for each observation, got {shape[0]} for "
            f"{len(example)}; keep the first axis as it is"
        )
    if not jnp.issubdtype(dtype, jnp.floating):
        raise ValueError(
            f"an encoder must return embeddings in floating point, to be trained, got {dtype}"
        )
    return {name: math.prod(found[name].shape[1:]) for name in encoder.layers}


def embedding_dim(encoder: Encoder, example: Array) -> int:
    """Returns the dimension of the embeddings, without computing any."""
    return layer_widths(encoder, example)[encoder.layers[-1]]


@dataclasses.dataclass(frozen=True)
class LinenEncoder:
    """A Flax Linen module as an encoder.

    Attributes:
      module: maps observations to embeddings or, with several `layers`, to a mapping by their
        names. It is told of training passes if it takes `train` or `deterministic`.
      layers: see `Encoder`.

    Example:
      >>> import flax.linen as nn
      >>> an.LinenEncoder(nn.Dense(3)).layers
      ('embedding',)
    """

    module: nn.Module
    layers: tuple[str, ...] = (EMBEDDING,)

    def init(self, key: Array, observations: Array) -> dict[str, PyTree]:
        """Returns what the module's own `init` returns."""
        return dict(self.module.init(key, observations, **self._mode(train=False)))

    def apply(
        self,
        variables: Mapping[str, PyTree],
        observations: Array,
        *,
        train: bool,
        key: Array | None = None,
    ) -> tuple[Layers, dict[str, PyTree]]:
        """See `Encoder`."""
        state = {name: value for name, value in variables.items() if name != PARAMS}
        streams = jax.random.split(key, len(_NOISE)) if key is not None and train else ()
        out = self.module.apply(
            variables,
            observations,
            **self._mode(train=train),
            rngs=dict(zip(_NOISE, streams, strict=False)) or None,
            mutable=list(state) if train and state else False,
        )
        if train and state:
            out, state = out
        return _named(out, self.layers), dict(state)

    def _mode(self, *, train: bool) -> dict[str, bool]:
        """Returns how this module is told whether it is being trained."""
        takes = inspect.signature(type(self.module).__call__).parameters
        modes = {"train": train, "deterministic": not train}
        return {name: value for name, value in modes.items() if name in takes}


@dataclasses.dataclass(frozen=True)
class NNXEncoder:
    """A Flax NNX module as an encoder.

    Attributes:
      module: maps observations to embeddings or, with several `layers`, to a mapping by their
        names; or a function of `nnx.Rngs` that makes such a module. Only a function lets the
        seed of a run choose the initial weights: a module brings its own.
      layers: see `Encoder`.

    Example:
      >>> from flax import nnx
      >>> an.NNXEncoder(nnx.Linear(5, 3, rngs=nnx.Rngs(0))).layers
      ('embedding',)
    """

    module: nnx.Module | Callable[[nnx.Rngs], nnx.Module]
    layers: tuple[str, ...] = (EMBEDDING,)

    def init(self, key: Array, observations: Array) -> dict[str, PyTree]:
        """Returns the module's parameters, and all else that it holds as "state"."""
        del observations
        _, params, state = nnx.split(self._make(key), nnx.Param, ...)
        return {PARAMS: nnx.to_pure_dict(params), "state": nnx.to_pure_dict(state)}

    def apply(
        self,
        variables: Mapping[str, PyTree],
        observations: Array,
        *,
        train: bool,
        key: Array | None = None,
    ) -> tuple[Layers, dict[str, PyTree]]:
        """See `Encoder`; noise comes from the module's own streams, which the key renews."""
        shapes = nnx.eval_shape(lambda: self._make(jax.random.key(0)))
        graph, params, state = nnx.split(shapes, nnx.Param, ...)
        nnx.replace_by_pure_dict(params, variables[PARAMS])
        kept = variables["state"]
        renewed = _with_noise(kept, key) if train and key is not None else kept
        nnx.replace_by_pure_dict(state, renewed)
        module = nnx.merge(graph, params, state)
        if train:
            module.train()
        else:
            module.eval()
        out = _named(module(observations), self.layers)
        if not train:
            return out, {"state": kept}
        new = nnx.to_pure_dict(nnx.state(module, nnx.Not(nnx.Param)))
        # Counters and statistics move on; the streams themselves stay those of the module.
        return out, {"state": jax.tree.map(lambda a, b: a if _is_key(a) else b, kept, new)}

    def _make(self, key: Array) -> nnx.Module:
        if isinstance(self.module, nnx.Module):
            return self.module
        return self.module(nnx.Rngs(key))


@dataclasses.dataclass(frozen=True)
class FunctionEncoder:
    """Two functions as an encoder: init(key, observations) and apply(params, observations).

    Attributes:
      init_fn: returns the parameters, a pytree.
      apply_fn: returns embeddings or, with several `layers`, a mapping by their names.
      layers: see `Encoder`.

    Example:
      >>> def init(key, x):
      ...     return {"scale": jnp.ones(())}
      >>> an.FunctionEncoder(init, lambda params, x: x * params["scale"]).layers
      ('embedding',)
    """

    init_fn: Callable[[Array, Array], PyTree]
    apply_fn: Callable[[PyTree, Array], Any]
    layers: tuple[str, ...] = (EMBEDDING,)

    def init(self, key: Array, observations: Array) -> dict[str, PyTree]:
        """Returns what `init_fn` returns, as "params"."""
        return {PARAMS: self.init_fn(key, observations)}

    def apply(
        self,
        variables: Mapping[str, PyTree],
        observations: Array,
        *,
        train: bool,
        key: Array | None = None,
    ) -> tuple[Layers, dict[str, PyTree]]:
        """See `Encoder`; a training pass is like any other."""
        del train, key
        return _named(self.apply_fn(variables[PARAMS], observations), self.layers), {}


def _is_key(leaf: Array) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def _with_noise(state: PyTree, key: Array) -> PyTree:
    """Returns the state with `key` folded into each of its streams.

    Layers keep streams of their own, and every call of a training step, every micro-batch too,
    gets noise of its own.
    """
    number = jax.random.bits(key)

    def fold(leaf: Array) -> Array:
        if not _is_key(leaf):
            return leaf
        folded = jax.vmap(lambda own: jax.random.fold_in(own, number))(leaf.reshape(-1))
        return folded.reshape(leaf.shape)

    return jax.tree.map(fold, state)


def as_encoder(network: Any) -> Encoder:
    """Returns an encoder as it is, or made of a Linen or NNX module or of (init, apply).

    Raises:
      TypeError: anything else.

    Example:
      >>> import flax.linen as nn
      >>> encoder = an.as_encoder(nn.Dense(3))
      >>> variables = encoder.init(jax.random.key(0), jnp.ones((2, 5)))
      >>> encoder.apply(variables, jnp.ones((2, 5)), train=False)[0]["embedding"].shape
      (2, 3)
    """
    # A Linen module has `init` and `apply` too, but no `layers`.
    if all(hasattr(network, name) for name in ("init", "apply", "layers")):
        return network
    if isinstance(network, nn.Module):
        return LinenEncoder(network)
    if isinstance(network, nnx.Module):
        return NNXEncoder(network)
    if isinstance(network, tuple) and len(network) == 2 and all(map(callable, network)):
        return FunctionEncoder(*network)
    raise TypeError(
        "an encoder must be a Flax Linen or NNX module, a pair of functions (init, apply), or "
        f"have init, apply and layers; got {type(network).__name__}"
    )


def _named(out: Any, layers: tuple[str, ...]) -> Layers:
    """Returns a network's output by the names of its layers."""
    if not isinstance(out, Mapping):
        if len(layers) != 1:
            raise TypeError(
                f"the encoder must return a mapping with the layers {', '.join(layers)}, got "
                f"{type(out).__name__}"
            )
        if not hasattr(out, "shape"):
            raise TypeError(
                f"the encoder must return an array, embeddings [batch, dim], got "
                f"{type(out).__name__}; return them alone"
            )
        return {layers[0]: out}
    missing = [name for name in layers if name not in out]
    if missing:
        raise ValueError(
            f"the encoder must return the layers {', '.join(layers)}, got {', '.join(out)}; "
            "name its layers, the embedding last"
        )
    return {name: out[name] for name in layers}
