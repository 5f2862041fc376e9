"""The values that pass between the parts of the package."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import jax

Array = jax.Array
PyTree = Any
Params = Mapping[str, Any]


_Class = TypeVar("_Class", bound=type)


def register_dataclass(cls: _Class) -> _Class:
    """Makes a dataclass a tree of jax: fields with metadata {"static": True} are its structure.

    With jax 0.10.2 structures of two classes that `jax.tree_util.register_dataclass` made trees
    compare as equal if they have the same fields. `jit` then runs, once in a hundred or so, the
    program of the one for the other: normal noise where Laplace noise was asked for.
    """
    fields = dataclasses.fields(cls)
    static = tuple(field.name for field in fields if field.metadata.get("static"))
    inside = tuple(field.name for field in fields if field.name not in static)

    def flatten(tree: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple(getattr(tree, name) for name in inside), tuple(
            getattr(tree, name) for name in static
        )

    def flatten_with_keys(tree: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        leaves, structure = flatten(tree)
        keys = map(jax.tree_util.GetAttrKey, inside)
        return tuple(zip(keys, leaves, strict=True)), structure

    def unflatten(structure: tuple[Any, ...], leaves: Any) -> Any:
        named = dict(zip(inside, leaves, strict=True)) | dict(zip(static, structure, strict=True))
        return cls(**named)

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls


@register_dataclass
@dataclasses.dataclass(frozen=True)
class Pairs:
    """One batch of positive pairs.

    Attributes:
      view1: observations of the anchors, [batch, ...].
      view2: observations of their positives, [batch, ...].
      latents1: what generated `view1`, [batch, dim], where it is known.
      latents2: what generated `view2`, [batch, dim], where it is known.
      own: observations of negatives that are each anchor's own, [batch, k, ...], if it has any.
      done1: what was done to an example to make `view1`, where it is known: name of an operation
        -> its parameters [batch, k], as numbers of about 0 to 1, or as bools for whether it was
        done at all.
      done2: likewise, of `view2`.
      number: which example of its data set `view1` shows, int32 [batch], from 0 on, where they
        are counted.
      members: the pairs of each member of an ensemble, of which these are the first; () elsewhere.
    """

    view1: Array
    view2: Array
    latents1: Array | None = None
    latents2: Array | None = None
    own: Array | None = dataclasses.field(default=None, kw_only=True)
    done1: Mapping[str, Array] | None = dataclasses.field(default=None, kw_only=True)
    done2: Mapping[str, Array] | None = dataclasses.field(default=None, kw_only=True)
    number: Array | None = dataclasses.field(default=None, kw_only=True)
    members: tuple["Pairs", ...] = dataclasses.field(default=(), kw_only=True)


class Intervention(NamedTuple):
    """Observations that differ in one thing that was done to them.

    Attributes:
      without: [batch, ...].
      applied: likewise, with the operation.
      strengths: how strongly it was applied, [batch]; zeros where it has no strength.
    """

    without: Array
    applied: Array
    strengths: Array


@register_dataclass
@dataclasses.dataclass(frozen=True)
class Weights:
    """All that an encoder and an objective have learned.

    Attributes:
      params: {"encoder": ..., "objective": ...}, what is trained.
      model_state: what the encoder gathers as it is trained: BatchNorm's running
        statistics; {} where it gathers nothing.
    """

    params: PyTree
    model_state: PyTree


class Unseen:
    """A word about a value that JAX carries along, and that makes no difference to it.

    All are equal, so two values that differ in it alone are the same tree of arrays: both branches
    of a `lax.cond`, say, may return one. The price is that JAX keeps one word for all: what comes
    out of such a condition, or out of a compiled function that was given several, has the word of
    the one that was traced first.
    """

    def __init__(self, word: str = "") -> None:
        self.word = word

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unseen)

    def __hash__(self) -> int:
        return hash(Unseen)

    def __repr__(self) -> str:
        return f"Unseen({self.word!r})"


@register_dataclass
@dataclasses.dataclass(frozen=True)
class LossOutput:
    """A contrastive loss with its parts.

    Attributes:
      loss: the mean of `per_anchor`, a float32 scalar (float64 for float64 input).
      per_anchor: one loss per anchor, [2 * batch] where both views are anchors
        (first view's anchors, then the second's), else [batch].
      alignment: the mean negative score of the positive pairs.
      uniformity: the mean log-sum-exp over keys, in the units of `alignment`,
        so that loss = alignment + uniformity.
      metrics: scalars to log, under the same names whatever the strategy; see the functions
        that fill it.
      chosen: the strategy that computed it, known before anything is computed; read it as
        `strategy`.
    """

    loss: Array
    per_anchor: Array
    alignment: Array
    uniformity: Array
    metrics: Mapping[str, Array]
    chosen: Unseen = dataclasses.field(default=Unseen(), metadata={"static": True})

    @property
    def strategy(self) -> str:
        """The name of the strategy that computed the loss.

        If the branches of a `lax.cond` have different strategies, it is always that of the first
        branch. Ask for that of each branch beforehand: `jax.eval_shape(branch, ...).strategy`.
        """
        return self.chosen.word
