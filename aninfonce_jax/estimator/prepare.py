"""From what `fit` is given to a source of pairs, an encoder that fits them, and sizes."""

import dataclasses
import inspect
import itertools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from aninfonce_jax.estimator import parts
from aninfonce_jax.estimator.checks import as_array, check_same_order, feature_names
from aninfonce_jax.estimator.model import RowSpec
from aninfonce_jax.estimator.sizes import Sizes
from aninfonce_jax.estimator.standardise import Standardised, check_varies, examine
from aninfonce_jax.models.encoder import Encoder
from aninfonce_jax.placement import Rows
from aninfonce_jax.sources import pairs as pairs_lib
from aninfonce_jax.sources.source import Source, as_feed

# Pairs of a source without end that statistics are taken from.
_SAMPLE = 2048
# Steps of one `partial_fit` on a source that has no end, or of which that is not known.
_STEPS_OF_A_PASS = 100


@dataclasses.dataclass(frozen=True)
class Prepared:
    """What a run is made of that follows from its data.

    Attributes:
      source: of pairs, with some set aside.
      encoder: that takes its observations.
      sizes: of the run.
      shape: of an observation.
      is_bytes: whether observations are bytes.
      names: of the columns.
      passes: steps that go over all pairs once.
      resizes: whether the encoder takes images whose size may be changed.
    """

    source: Source
    encoder: Encoder
    sizes: Sizes
    shape: tuple[int, ...]
    is_bytes: bool
    names: np.ndarray | None
    passes: int
    resizes: bool


def as_source(X: Any, y: Any, rule: Any) -> Source:
    """Returns what `fit` is given as a source.

    Args:
      X: first views, a source, an iterator of pairs, or what the rule takes.
      y: second views, or labels for the rule.
      rule: makes pairs of X; None: there is none.

    Raises:
      TypeError, ValueError: it is none of these.
    """
    if isinstance(X, Source):
        if y is not None:
            raise ValueError("fit(source) takes the source alone, got a second argument")
        return X
    if hasattr(X, "__next__"):
        return pairs_lib.from_iterator(X)
    if rule is not None:
        return _by_rule(rule, X, y)
    first = as_array(X)
    if y is None:
        raise ValueError(
            "fit(X) needs the other views too, fit(view1, view2), or a rule that makes pairs of "
            "one array: AnInfoNCE(pairs=an.pairs.time_lagged) for a time series, "
            "pairs=an.pairs.grouped and fit(X, labels) for rows of the same thing; "
            "requires y to be passed, but the target y is None"
        )
    second = as_array(y, "view2")
    check_same_order(feature_names(X), feature_names(y))
    made = pairs_lib.paired(first, second)
    for array, what in ((first, "X"), (second, "view2")):
        check_varies(array, what)
    return made


def _by_rule(rule: Any, X: Any, y: Any) -> Source:
    if not callable(rule):
        raise TypeError(
            "pairs must be a function that makes pairs of X, such as an.pairs.time_lagged, got "
            f"{rule!r}"
        )
    is_sessions = isinstance(X, list | tuple) and np.ndim(X[0] if len(X) else 0) > 1
    given = X if is_sessions else as_array(X)
    if len(given) < 2 and not is_sessions:
        raise ValueError("n_samples=1 is too few to make pairs of: at least 2 rows are needed")
    takes = inspect.signature(rule).parameters
    if not takes:
        raise TypeError(f"pairs must be a function of X that makes pairs of it, got {rule!r}")
    if "labels" not in takes and _is_view_of(y, given):
        raise ValueError(
            "two views were given, and a pairs rule, which makes pairs of the first alone; leave "
            "out the second view, or pairs="
        )
    if "labels" in takes:
        if y is None:
            raise ValueError(
                "this pairs rule takes labels: fit(X, labels); "
                "requires y to be passed, but the target y is None"
            )
        made = rule(given, labels=np.asarray(y))
    else:
        made = rule(given)
    if not isinstance(made, Source):
        raise TypeError(f"a pairs rule must return a source, got {type(made).__name__}")
    return made


def _is_view_of(y: Any, given: Any) -> bool:
    """Whether a second argument looks like other views: scikit-learn passes targets here."""
    return isinstance(given, np.ndarray) and getattr(y, "shape", None) == given.shape


def prepare(
    source: Source,
    *,
    names: np.ndarray | None,
    encoder: Any,
    dim: int,
    standardises: bool,
    sizes: Callable[..., Sizes],
) -> Prepared:
    """Returns all that follows from the data.

    Args:
      source: of pairs.
      names: of the columns, where they have any.
      encoder: the estimator's argument.
      dim: of the embeddings.
      standardises: whether observations are to be standardised.
      sizes: from the number of pairs, None where they have no end, and `is_columns` to sizes.

    Raises:
      ValueError: data or arguments are not sound.
    """
    shape = tuple(source.example().shape[1:])
    form = source.row_form
    is_bytes = form.is_bytes and form.observe is None
    chosen = sizes(source.pair_count, is_columns=len(shape) == 1)
    arrays = source.at_hand(max(_SAMPLE, chosen.batch_size))
    passes = _STEPS_OF_A_PASS
    if source.pair_count is not None:
        source = source.with_held_out(chosen.held_out)
        passes = max(1, _checked_count(source, chosen) // chosen.batch_size)
    elif arrays:
        source, chosen = _without_first(source, len(arrays[0]), chosen)
    elif standardises:
        arrays = _sample(source, chosen.batch_size)
    made = parts.make_encoder(encoder, dim, shape)
    resizes = parts.is_of_images(encoder, shape)
    # Images are standardised by the encoder; all else is looked through in any case, for NaN.
    if arrays and not (is_bytes and resizes):
        mean, scale = examine(arrays)
        if standardises and not resizes:
            made = Standardised(made, mean, scale)
    parts.check_dim(made, dim, shape)
    return Prepared(source, made, chosen, shape, is_bytes, names, passes, resizes and is_bytes)


def row_spec(prepared: Prepared) -> RowSpec:
    """Returns what observations a model takes that was trained on these."""
    is_square = len(prepared.shape) == 3 and prepared.shape[0] == prepared.shape[1]
    return RowSpec(prepared.shape, prepared.is_bytes, resize=prepared.resizes and is_square)


def _checked_count(source: Source, sizes: Sizes) -> int:
    """Returns how many pairs are left to train on."""
    count = source.pair_count or 0
    if count < sizes.batch_size:
        raise ValueError(
            f"batch_size={sizes.batch_size} is more than the {count} pairs that are left to "
            f"train on with {sizes.held_out} set aside; lower it, or pass held_out=0"
        )
    return count


def _without_first(source: Source, at_hand: int, sizes: Sizes) -> tuple[Source, Sizes]:
    """Sets the first pairs of a source that reads in order aside, of those that are at hand."""
    if at_hand < sizes.batch_size:
        raise ValueError(
            f"batch_size={sizes.batch_size} is more than the {at_hand} pairs of the iterator; "
            "lower it, or pass arrays"
        )
    held_out = min(sizes.held_out, at_hand // 4)
    if held_out >= sizes.batch_size:
        source = source.with_held_out(held_out)
    batches = max(1, held_out // sizes.batch_size)
    return source, dataclasses.replace(sizes, held_out_batches=batches)


def _sample(source: Source, batch_size: int) -> list[np.ndarray]:
    """Returns views of some pairs of a source of one's own."""
    key = jax.random.key(0)
    if source.fed(batch_size) is None:
        batches = [source.pairs(key, None, batch_size)]
    else:
        with as_feed(source.open_feed(Rows(batch_size), seed=0, step=0)) as feed:
            count = max(1, _SAMPLE // batch_size)
            batches = [source.pairs(key, fed, batch_size) for fed in itertools.islice(feed, count)]
    return [np.asarray(view) for batch in batches for view in (batch.view1, batch.view2)]
