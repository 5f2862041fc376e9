"""`an.diagnose`: every check that the data allow."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from aninfonce_jax.diagnosis import conditional, marginal, negatives, shift
from aninfonce_jax.diagnosis.arrays import PairsError, as_embeddings
from aninfonce_jax.diagnosis.findings import Diagnosis, Finding
from aninfonce_jax.diagnosis.score_matching import Fit, fit_concentration
from aninfonce_jax.scores import checked

FloatArray = npt.NDArray[np.float64]

# With fewer pairs, in all or per dimension, the tests' error rates are not what they say.
LEAST_PAIRS, LEAST_PER_DIMENSION = 100, 20
DEFAULT_NEGATIVES = 1023
# With less between the views than this share of its spread, a dimension is the same in both.
_SAME = 1e-5
# A dimension with less than this share of a uniform one's spread says nothing of Λ.
_DEAD = 0.05


def diagnose(
    view1: Any,
    view2: Any,
    *,
    encoder: Callable[[Any], Any] | None = None,
    concentration: npt.ArrayLike | None = None,
    batch_negatives: int = DEFAULT_NEGATIVES,
    reference: Any = None,
) -> Diagnosis:
    """Tells which assumption of Theorem 3.1 pairs of embeddings break.

    The theorem: latents uniform on the sphere, positives with density ∝ exp(-½ (z⁺-z)ᵀΛ(z⁺-z))
    with one diagonal Λ, an invertible mixing. A perfect encoder returns the latents up to order
    and signs (rotations where Λ repeats), so its embeddings keep all of that. What embeddings
    break is broken by the data or by the encoder; this can't tell which, and says what to try.

    Every check is made to raise a false alarm in at most 5 % of cases (docs/diagnose.md says how
    that is measured, and what is seen how often). With eleven checks some alarm is likely: look
    at the effects. Pairs must be independent of each other: one pair per input, of inputs that
    were not trained on. Rows that repeat a view exactly are told, and left out if enough remain.

    Args:
      view1: embeddings of anchors, [pairs, dim]: NumPy, JAX, or by DLPack (torch); or what
        `encoder` takes.
      view2: embeddings of their positives, row by row.
      encoder: from views to embeddings; None if they are embeddings already.
      concentration: the learned Λ̂, [dim], to be compared with the pairs; None without.
      batch_negatives: how many negatives an anchor has in training.
      reference: embeddings (or inputs of the encoder) of another set, to be told from the
        anchors by a classifier: test or clean inputs; or several sets by name; None without.

    Returns:
      Findings with verdicts, evidence and advice; `print` it, or `to_dict()` for JSON.

    Raises:
      TypeError: arrays that are not in reach.
      ValueError: shapes that do not fit, values that are not finite, fewer than 100 pairs or
        fewer than 20 per dimension, or views that are the same; a `PairsError` where it is the
        pairs that are at fault.

    Example:
      >>> view1 = np.random.default_rng(0).normal(size=(500, 3))
      >>> view1 /= np.linalg.norm(view1, axis=1, keepdims=True)
      >>> view1[:, 2] = np.abs(view1[:, 2])  # an encoder that loses a sign
      >>> view2 = view1 + 0.1 * np.random.default_rng(1).normal(size=view1.shape)
      >>> "injective" in an.diagnose(view1, view2).violated
      True
    """
    references = _by_name(reference)
    if encoder is not None:
        if not callable(encoder):
            raise TypeError(f"encoder must be callable, got {type(encoder).__name__}")
        view1, view2 = encoder(view1), encoder(view2)
        references = {name: encoder(given) for name, given in references.items()}
    one = as_embeddings("view1", view1, LEAST_PAIRS)
    other = as_embeddings("view2", view2, LEAST_PAIRS)
    if one.shape != other.shape:
        raise PairsError(f"both views must have one shape, got {one.shape} and {other.shape}")
    if len(one) < LEAST_PER_DIMENSION * one.shape[1]:
        raise PairsError(
            f"{one.shape[1]} dimensions need at least {LEAST_PER_DIMENSION * one.shape[1]} pairs, "
            f"{LEAST_PER_DIMENSION} for each, got {len(one)}; encode more pairs"
        )
    checked.at_least("batch_negatives", batch_negatives, 1)
    learned = _checked_concentration(concentration, one.shape[1])
    pairs, needed = len(one), max(LEAST_PAIRS, LEAST_PER_DIMENSION * one.shape[1])
    kept_rows = marginal.first_of_each(one, other)
    left_out = needed <= len(kept_rows) < pairs
    if left_out:
        one, other = one[kept_rows], other[kept_rows]
    u, v = _unit(one), _unit(other)
    names = [f"dimension {k}" for k in range(u.shape[1])]
    findings = [marginal.check_collapse(u, names)]
    if len(kept_rows) < pairs:
        findings.append(marginal.check_independent(pairs, len(kept_rows), left_out=left_out))
    findings += [
        marginal.check_injective(u, names),
        marginal.check_support(one, u, names),
        marginal.check_uniform(u, names),
    ]
    live = np.flatnonzero(np.sqrt(u.shape[1]) * u.std(axis=0) > _DEAD)
    fitted = np.full(u.shape[1], np.nan)
    _refuse_same(u[:, live], v[:, live], [names[k] for k in live])
    if len(live) >= 2:
        fit = fit_concentration(_unit(u[:, live]), _unit(v[:, live]))
        fitted[live] = fit.concentration
        kept = None if learned is None else learned[live]
        findings += _conditional(fit, [names[k] for k in live], kept, batch_negatives)
    for name, given in references.items():
        findings.append(shift.check_shift(u, _reference(given, u.shape[1]), name))
    return Diagnosis(tuple(findings), pairs, u.shape[1], fitted)


def _conditional(
    fit: Fit, names: list[str], learned: FloatArray | None, batch_negatives: int
) -> list[Finding]:
    findings = [
        conditional.check_pairing(fit, names),
        conditional.check_shape(fit, names),
        conditional.check_modes(fit, names),
        conditional.check_centre(fit, names),
        conditional.check_axes(fit, names),
        conditional.check_constant(fit, names),
    ]
    if learned is not None:
        findings.append(conditional.check_learned(fit, learned, names))
    scale = fit.scale if learned is None else np.sqrt(learned)
    findings.append(negatives.check_negatives(fit.anchors, fit.positives, scale, batch_negatives))
    return findings


def _refuse_same(u: FloatArray, v: FloatArray, names: list[str]) -> None:
    apart = np.sqrt(np.mean((u - v) ** 2, axis=0))
    same = [name for name, one in zip(names, apart < _SAME * u.std(axis=0), strict=True) if one]
    if same:
        where = "all dimensions" if len(same) == len(names) else ", ".join(same)
        raise PairsError(
            f"both views of a pair must differ, but they are the same in {where}: Λ would be "
            "infinite; pass two views of each input, and leave out what never changes"
        )


def _unit(x: FloatArray) -> FloatArray:
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    return x / np.where(norms > 0, norms, 1.0)


def _by_name(reference: Any) -> dict[str, Any]:
    if reference is None:
        return {}
    return dict(reference) if isinstance(reference, Mapping) else {"": reference}


def _reference(given: Any, dim: int) -> FloatArray:
    found = as_embeddings("reference", given, LEAST_PAIRS)
    if found.shape[1] != dim:
        raise PairsError(f"reference must have {dim} dimensions as the views, got {found.shape[1]}")
    return _unit(found)


def _checked_concentration(given: npt.ArrayLike | None, dim: int) -> FloatArray | None:
    if given is None:
        return None
    values = checked.real("concentration", given)
    if values.shape != (dim,):
        raise ValueError(
            f"concentration must have one value per dimension, ({dim},), got shape {values.shape}"
        )
    if not (np.isfinite(values) & (values > 0)).all():
        raise ValueError("concentration must be positive and finite")
    return values
