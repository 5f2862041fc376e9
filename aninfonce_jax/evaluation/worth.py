"""What a factor is worth to a contrastive loss, and whether a run can find it by that."""

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from aninfonce_jax.dgp.conditionals import Anisotropic
from aninfonce_jax.dgp.marginals import Uniform
from aninfonce_jax.dgp.spaces import Sphere
from aninfonce_jax.dgp.stream import LatentProcess
from aninfonce_jax.scores import checked
from aninfonce_jax.sources.source import PowerScore
from aninfonce_jax.types import Array

# What a factor offers over a whole run, worth times pairs, in nats: with less than this a run is
# not expected to find it. docs/synthetic.md tells where this was checked.
LEAST_OFFERED = 500.0
# Anchors of a batch over which the mean is taken; each has all the batch for its keys.
_ANCHORS = 256
_AT_ONCE = 16


def factor_worth(
    concentration: npt.ArrayLike, batch_size: int, *, batches: int = 16, seed: int = 0
) -> np.ndarray:
    """Returns by how many nats the floor of AnInfoNCE rises if a factor is not known.

    The floor is the loss of a perfect encoder of latents that are uniform on the sphere, with
    positives of concentration Λ. A factor that is hardly held (small Λ) tells little of which key
    is the positive; and where all are held so tightly that the others tell it already, no factor
    tells anything new. More negatives raise the worth.

    What a run can learn a factor by is its worth times the number of pairs that the run sees. With
    less than about 500 nats do not expect that the factor is found (docs/synthetic.md).

    Args:
      concentration: Λ, [dim].
      batch_size: how many pairs are contrasted with each other.
      batches: how many are drawn; the mean is over up to 256 anchors of each.
      seed: of the draws.

    Returns:
      The worth of each factor, [dim], in nats for each anchor.

    Raises:
      ValueError: Λ that is not positive, fewer than two factors, or a batch without negatives.

    Example:
      >>> tight, loose = an.factor_worth([25.0, 25.0, 1.0], batch_size=64)[1:]
      >>> bool(tight > 10 * loose)
      True
    """
    values = checked.concentration("concentration", concentration)
    if len(values) < 2:
        raise ValueError(f"a sphere needs at least two factors, got {len(values)} concentration")
    if batch_size < 2 or batches < 1:
        raise ValueError(
            f"batch_size must be at least 2 and batches at least 1, got {batch_size} and {batches}"
        )
    process = LatentProcess(
        Sphere(len(values)), Uniform(), Anisotropic(values), mixing=lambda latents: latents
    )

    @jax.jit
    def worth(key: Array) -> Array:
        pairs = process.sample(key, batch_size)
        return worth_of_factors(pairs.view1, pairs.view2, PowerScore(values))

    keys = jax.random.split(jax.random.key(seed), batches)
    return mean_worth(np.stack([np.asarray(worth(key)) for key in keys]), values)


def mean_worth(of_batches: np.ndarray, concentration: np.ndarray) -> np.ndarray:
    """Returns the worth of each factor, [dim], of that by batches, [batches, dim].

    Factors of the same Λ are worth the same. Where little is left to learn, a few anchors make up
    most of a mean, so those factors share theirs.
    """
    each = np.mean(np.asarray(of_batches, np.float64), axis=0)
    _, group = np.unique(np.asarray(concentration), return_inverse=True)
    return (np.bincount(group, each) / np.bincount(group))[group]


def worth_of_factors(latents1: Array, latents2: Array, score: PowerScore) -> Array:
    """Returns the worth of each factor, [dim], by a batch of true latents; may be traced.

    Given its keys, the true posterior p of which is the positive follows from the true score, and
    q from the score without a factor. By -log q the loss is that much larger in the mean as q
    diverges from p. That mean scatters far less than the difference of the losses themselves.

    Args:
      latents1: of the anchors, [batch, dim].
      latents2: of their positives, [batch, dim].
      score: the true one.
    """
    power = score.exponent
    weights = jnp.asarray(score.concentration, jnp.float32) / power
    anchors = min(len(latents1), _ANCHORS)

    def of_anchor(index: Array) -> Array:
        keys = latents1.at[index].set(latents2[index])
        parts = weights[None] * jnp.abs(keys - latents1[index][None]) ** power
        logits = -jnp.sum(parts, axis=1)
        posterior = jax.nn.softmax(logits)
        whole, without = (jax.nn.logsumexp(x, axis=0) for x in (logits, logits[:, None] + parts))
        return without - whole - posterior @ parts

    worth = jax.lax.map(of_anchor, jnp.arange(anchors), batch_size=_AT_ONCE)
    # Nothing diverges by less than zero; rounding does.
    return jnp.maximum(jnp.mean(worth, axis=0), 0.0)


def find_too_little(
    worth: np.ndarray, concentration: np.ndarray, batch_size: int, steps: int
) -> str | None:
    """Returns a sentence if the least of the factors offers too little for a run to find it by.

    Args:
      worth: of each factor, [dim], in nats for each anchor.
      concentration: Λ, [dim].
      batch_size: of the run.
      steps: of the run.
    """
    least = int(np.argmin(worth))
    offered = float(worth[least]) * batch_size * steps
    if offered >= LEAST_OFFERED:
        return None
    return (
        f"factors of Λ = {concentration[least]:g} may not be found with these negatives: to an "
        f"anchor with {batch_size - 1} of them one is worth {worth[least]:.2g} nats, over all "
        f"pairs of the run {offered:.2g}, where {LEAST_OFFERED:g} are needed; take larger batches, "
        "more steps, or other concentrations"
    )
