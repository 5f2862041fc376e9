"""How large a batch, how many steps and how many pairs held out: by how many pairs there are."""

import dataclasses
import numbers

# Largest batch that is chosen, and how many such a data set should hold.
_BATCH = 512
_BATCHES = 8
_LEAST_BATCH = 16
# Of rows of columns, whose network learns a few thousand pairs by heart in large batches: small
# ones keep it from that, and cost less. Largest batch of few, and how many of larger ones.
_FEW_BATCH = 128
_FEW_BATCHES = 48
# Fewer pairs than this are all trained on.
_LEAST_TO_SPLIT = 4 * _LEAST_BATCH
# Rows of a batch that make a device worth its while.
_ROWS_PER_DEVICE = 8
_STEPS = 1500
# Evaluations of a run.
_EVALUATIONS = 20
# Evaluations without a better one until a run gives up.
PATIENCE = 10
_HELD_OUT_BATCHES = 8


@dataclasses.dataclass(frozen=True)
class Sizes:
    """What a run takes at a time, and how often.

    Attributes:
      batch_size: pairs of a step.
      held_out: pairs that are set aside; 0: none.
      devices: that share a batch.
      steps: of the run.
      every: steps between evaluations.
      held_out_batches: of the held-out loss.
    """

    batch_size: int
    held_out: int
    devices: int
    steps: int
    every: int
    held_out_batches: int


def choose_sizes(
    pairs: int | None,
    *,
    batch_size: int | None,
    steps: int | None,
    held_out: float,
    devices: int,
    is_columns: bool,
) -> Sizes:
    """Returns the sizes of a run.

    Args:
      pairs: how many there are; None: without end.
      batch_size: as asked for; None: chosen.
      steps: as asked for; None: chosen.
      held_out: share of the pairs to set aside.
      devices: that are at hand.
      is_columns: whether an observation is a row of columns.

    Raises:
      ValueError: an argument is out of its range, or a batch is more than all pairs.
    """
    _check("batch_size", batch_size, 2)
    _check("steps", steps, 1)
    if not is_number(held_out) or not 0 <= held_out <= 0.5:
        raise ValueError(f"held_out must be a share from 0 to 0.5, got {held_out!r}")
    if pairs is not None and pairs < 2:
        raise ValueError(
            f"n_samples={pairs} is too few: a pair is told from others, so at least 2 are needed"
        )
    most = _BATCH * _BATCHES if pairs is None else pairs
    size = batch_size or _choose_batch(pairs, is_columns=is_columns)
    if batch_size is None:
        shared = devices if size >= _ROWS_PER_DEVICE * devices else 1
        size -= size % shared
    else:
        shared = max(count for count in range(1, devices + 1) if size % count == 0)
    if pairs is not None and size > pairs:
        raise ValueError(
            f"batch_size={size} is more than the {pairs} pairs there are; lower it, or leave it out"
        )
    aside = max(round(held_out * most), size) if held_out else 0
    if most < _LEAST_TO_SPLIT or most < 4 * size:
        aside = 0
    last = steps or _STEPS
    return Sizes(
        batch_size=size,
        held_out=aside,
        devices=shared,
        steps=last,
        every=max(1, last // _EVALUATIONS),
        held_out_batches=max(1, min(_HELD_OUT_BATCHES, aside // size)),
    )


def _choose_batch(pairs: int | None, *, is_columns: bool) -> int:
    """Returns how many pairs a step takes, of so many that there are; None: without end."""
    if pairs is None:
        return _BATCH
    most = max(_FEW_BATCH, pairs // _FEW_BATCHES) if is_columns else _BATCH
    return min(pairs, _BATCH, most, max(_LEAST_BATCH, pairs // _BATCHES))


def is_number(value: object) -> bool:
    """Whether an argument is a real number."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _check(name: str, value: object, least: int) -> None:
    is_whole = hasattr(value, "__index__") and not isinstance(value, bool)
    if value is not None and (not is_whole or value < least):  # type: ignore[operator]
        raise ValueError(f"{name} must be a whole number, at least {least}, got {value!r}")
