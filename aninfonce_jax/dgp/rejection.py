"""Rejection sampling of a whole batch on the device: exact, bounded, without a host loop.

A naive loop redraws the whole batch until its unluckiest row has been accepted. Here
the first round proposes once for every row; later rounds have a fixed number of slots
and deal them out in turn to the rows that still wait. As rows finish, the others get
more proposals each, so the work stays near rows / acceptance and the tail costs
nothing, with static shapes throughout.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from aninfonce_jax.types import Array, PyTree

# A setting whose acceptance is lower is refused when a process is assembled.
MIN_ACCEPTANCE = 1e-3
# Expected acceptances at MIN_ACCEPTANCE before a row is given up: e^-50 of them are.
_PATIENCE = 50.0

Propose = Callable[[Array, PyTree], tuple[Array, Array]]


def sample_by_rejection(key: Array, propose: Propose, rows: PyTree, slots: int) -> Array:
    """Draws one accepted candidate for every row.

    Args:
      key: a random key.
      propose: maps a key and `rows`, gathered to any number of rows m, to candidates
        [m, ...] and to whether each is accepted, [m].
      rows: what the proposals of each row depend on; arrays [n, ...].
      slots: proposals per round after the first; about n × (1 / acceptance - 1) spends
        few rounds and wastes little.

    Returns:
      The samples [n, ...]. A row is NaN if its parameters are not finite, or if it was
      never accepted within a bound that only a setting far below `MIN_ACCEPTANCE` meets.
    """
    count = jax.tree.leaves(rows)[0].shape[0]
    max_rounds = math.ceil(_PATIENCE / MIN_ACCEPTANCE * max(1.0, count / slots))
    slot = jnp.arange(slots, dtype=jnp.int32)

    candidates, accepted = propose(jax.random.fold_in(key, 0), rows)
    expand = (slice(None),) + (None,) * (candidates.ndim - 1)
    samples = jnp.where(accepted[expand], candidates, jnp.nan)
    # A NaN parameter is never accepted: waiting for it would look like a hang.
    waiting = ~accepted & _finite_rows(rows)

    def proceed(state: tuple[Array, Array, Array]) -> Array:
        index, _, waiting = state
        return (index < max_rounds) & waiting.any()

    def play_round(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        index, samples, waiting = state
        rank = jnp.cumsum(waiting, dtype=jnp.int32)
        turn = slot % jnp.maximum(rank[-1], 1) + 1
        row = jnp.searchsorted(rank, turn, method="scan")
        candidates, accepted = propose(
            jax.random.fold_in(key, index), jax.tree.map(lambda x: x[row], rows)
        )
        # If several candidates for a row are accepted, the first slot's is kept: a rule that
        # does not look at the values, so it does not bias them.
        first = jnp.full(count, slots, jnp.int32).at[row].min(jnp.where(accepted, slot, slots))
        settled = waiting & (first < slots)
        chosen = candidates[jnp.minimum(first, slots - 1)]
        samples = jnp.where(settled[expand], chosen, samples)
        return index + 1, samples, waiting & ~settled

    _, samples, _ = jax.lax.while_loop(proceed, play_round, (jnp.int32(1), samples, waiting))
    return samples


def _finite_rows(rows: PyTree) -> Array:
    """Returns which rows have only finite parameters, [n]."""
    leaves = [jnp.isfinite(x).reshape(x.shape[0], -1).all(axis=1) for x in jax.tree.leaves(rows)]
    return jnp.stack(leaves).all(axis=0)
