"""A queue of keys from earlier batches, which are negatives of later ones (MoCo)."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike, DTypeLike

from aninfonce_jax.losses import checks
from aninfonce_jax.losses.given import Bank, checked_labels
from aninfonce_jax.types import Array


class Queue(NamedTuple):
    """The last keys that were pushed; a pytree, which a step takes and returns.

        queue = an.Queue.empty(65536, dim=128, labelled=True)
        out = an.infonce_loss(query, key, negatives=queue.bank(), labels=ids, same_label="left out")
        queue = queue.push(key, ids)

    Labels that number the examples keep an example from being contrasted with its own earlier
    keys. On several devices, inside `jax.shard_map`, each has a queue of its own and passes it as
    its share.

    Attributes:
      keys: [size, dim], without gradient.
      labels: int32 [size], or None.
      position: where the next key goes, a scalar.
      filled: how many keys were pushed yet, at most `size`, a scalar.

    Example:
      >>> queue = an.Queue.empty(128, dim=4)
      >>> queue = queue.push(jnp.eye(4))
      >>> out = an.infonce_loss(jnp.eye(4), jnp.eye(4), temperature=0.1, negatives=queue.bank())
      >>> out.per_anchor.shape
      (4,)
    """

    keys: Array
    labels: Array | None
    position: Array
    filled: Array

    @classmethod
    def empty(
        cls, size: int, dim: int, *, labelled: bool = False, dtype: DTypeLike = jnp.float32
    ) -> "Queue":
        """Returns a queue for `size` keys [dim], whose keys have labels or not."""
        size, dim = checks.whole_number("size", size), checks.whole_number("dim", dim)
        return cls(
            keys=jnp.zeros((size, dim), dtype),
            labels=jnp.zeros(size, jnp.int32) if checks.flag("labelled", labelled) else None,
            position=jnp.int32(0),
            filled=jnp.int32(0),
        )

    def push(self, keys: ArrayLike, labels: ArrayLike | None = None) -> "Queue":
        """Returns the queue with `keys` [batch, dim] in the place of the oldest.

        Raises:
          TypeError: keys that are not floating point, or labels that are not integers.
          ValueError: more keys than the queue holds, another dim, or labels where the queue has
            none, and none where it has.
        """
        added = checks.embeddings("keys", keys)
        size, dim = self.keys.shape
        if added.shape[0] > size or added.shape[1] != dim:
            raise ValueError(f"keys must have shape [at most {size}, {dim}], got {added.shape}")
        if (labels is None) != (self.labels is None):
            having, given = ("none", "some") if self.labels is None else ("labels", "none")
            raise ValueError(
                f"a queue has labels for all of its keys or for none; this one has {having}, got "
                f"{given}; make it with labelled={self.labels is None}"
            )
        count = added.shape[0]
        places = (self.position + lax.iota(jnp.int32, count)) % size
        marks = checked_labels("labels", labels, count)
        return Queue(
            keys=self.keys.at[places].set(lax.stop_gradient(added).astype(self.keys.dtype)),
            labels=None if self.labels is None else self.labels.at[places].set(marks),
            position=(self.position + count) % size,
            filled=jnp.minimum(self.filled + count, size),
        )

    def bank(self) -> Bank:
        """Returns the keys as negatives of a loss; places not filled yet do not count."""
        size = self.keys.shape[0]
        return Bank(self.keys, self.labels, lax.iota(jnp.int32, size) < self.filled)
