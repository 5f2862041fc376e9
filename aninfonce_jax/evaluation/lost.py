"""Whether an encoder has lost a factor, by its embeddings alone."""

import numpy as np

from aninfonce_jax.diagnosis import marginal

# A factor is called lost if the evidence for it is at least this large, by the lower end of its
# interval. Encoders that found every factor were seen to stay below 0.05. One that lost some may
# stay below it, too, and is then not noticed.
_LOST = 0.2
# With fewer outputs than this there are no others that an output could follow from.
_FEWEST = 2


def find_lost_factor(embeddings: np.ndarray) -> str | None:
    """Returns a sentence if a factor looks lost, and what to do; None if all look found.

    The truth is not needed. Outputs of which each is a factor of a uniform sphere take both signs
    alike, and none of them follows from the others.

    Args:
      embeddings: of anchors, [samples, dim], of any length.
    """
    samples, dim = embeddings.shape
    lengths = np.linalg.norm(embeddings, axis=1, keepdims=True)
    # An interval needs more samples than a regression has coefficients, on each half.
    if dim < _FEWEST or samples < 8 * dim or not np.all(lengths > 0):
        return None
    points = np.asarray(embeddings / lengths, np.float64)
    finding = marginal.check_injective(points, [f"output {k + 1}" for k in range(dim)])
    worst = max(finding.evidence, key=lambda item: item.interval[0])
    if worst.interval[0] < _LOST:
        return None
    return (
        f"a factor looks lost: {worst.name} is {worst.effect:.2f} where an encoder that found all "
        "of them has 0; train again with objective.kind=aninfonce, objective.spreading=3 and "
        "objective.keeping=0.3, with more steps, or with larger batches; --mode=diagnose shows more"
    )
