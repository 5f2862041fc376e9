"""What a run says of a factor that looks lost, by its embeddings alone."""

import numpy as np

from aninfonce_jax.scores.lost import ONE_SIDED, TOLD, lost_factor_traces

# Of data whose factors nobody has counted, a trace is spoken of from here on only: their factors
# may be unevenly spread, or depend on each other, without any loss. The first is a share of the
# squared length.
_OFFSET, _TOLD = 0.5, 0.5
# A trace is the process's own if its latents have this share of the limit.
_NEAR = 0.9
_MORE = "with more steps, or with larger batches"
_ADVICE = (
    "Train again with objective.kind=aninfonce and objective.spreading=3, and with "
    "objective.keeping=0.3 if observations have about as many dimensions as there are factors; or, "
    f"if it had them, {_MORE}; --mode=diagnose shows more"
)
_ADVICE_OFF_SPHERE = f"Train again {_MORE}, or with a lower learning rate"


def find_lost_factor(
    embeddings: np.ndarray,
    observations: np.ndarray | None = None,
    *,
    on_sphere: bool = True,
    as_many: bool = True,
    latents: np.ndarray | None = None,
) -> str | None:
    """Returns a sentence if a factor looks lost, and what to do; None if all look found.

    Args:
      embeddings: of anchors, [samples, dim].
      observations: what was embedded, [samples, ...]; None: not known, or not to be looked at.
      on_sphere: whether the directions of embeddings are all that counts.
      as_many: whether there are known to be as many outputs as factors.
      latents: of the process, [samples, dim], if they are known: what they show themselves, as
        those around a pole of the sphere do, is no sign of a loss. None: they are spread evenly.
    """
    samples, dim = embeddings.shape
    # Moments of fewer samples scatter by more than what is looked for.
    if dim < 2 or samples < 16 * dim or (on_sphere and not np.all(np.any(embeddings, axis=1))):
        return None
    seen = observations if as_many else None
    traces = lost_factor_traces(embeddings, seen, on_sphere=on_sphere)
    if as_many:
        found = [trace for trace in traces if trace.found]
        if found and latents is not None:
            theirs = lost_factor_traces(latents, seen, on_sphere=on_sphere)
            own = {trace.name for trace in theirs if trace.value > _NEAR * trace.limit}
            found = [trace for trace in found if trace.name not in own]
        begin, means = (
            "a factor looks lost",
            "; an encoder that found all of them shows no such thing",
        )
    else:
        limits = {ONE_SIDED: (_OFFSET * dim) ** 0.5, TOLD: _TOLD}
        found = [t for t in traces if t.value > limits.get(t.name, np.inf)]
        begin = "it looks as if a factor may be lost"
        means = (
            "; how many factors there are is not known here, so it may also be that there are "
            "fewer than outputs, or that they depend on each other"
        )
    if not found:
        return None
    words = "; ".join(trace.words for trace in found)
    return f"{begin}: {words}{means}. {_ADVICE if on_sphere else _ADVICE_OFF_SPHERE}"
