"""The lasso (Tibshirani, 1996) for several targets at once, by coordinate descent."""

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

# Shares of the penalty at which every weight is zero.
PENALTIES = tuple(10.0**power for power in (-3.0, -2.5, -2.0, -1.5, -1.0))
_MOST_SWEEPS = 200
_ACCURACY = 1e-5


def lasso_weights(
    inputs: FloatArray, targets: FloatArray, weights: FloatArray, *, seed: int
) -> FloatArray:
    """Returns the weights of inputs for targets, [inputs, targets].

    The penalty is chosen per target, on a random fifth of the samples; the weights are those
    of the fit to the rest.

    Args:
      inputs: standardised, [samples, inputs].
      targets: standardised, [samples, targets].
      weights: how often each sample counts, [samples].
      seed: of the fifth.
    """
    aside = np.zeros(len(inputs), bool)
    aside[np.random.default_rng(seed).permutation(len(inputs))[: len(inputs) // 5]] = True
    kept = np.where(aside, 0.0, weights)
    kept = kept / kept.sum()
    gram = (inputs * kept[:, None]).T @ inputs
    moment = (inputs * kept[:, None]).T @ targets
    largest = np.max(np.abs(moment), axis=0)
    best = np.zeros_like(moment)
    best_error = np.full(targets.shape[1], np.inf)
    solution = np.zeros_like(moment)
    for share in sorted(PENALTIES, reverse=True):
        solution = _descend(gram, moment, share * largest, solution)
        errors = weights[aside] @ (targets[aside] - inputs[aside] @ solution) ** 2
        better = errors < best_error
        best[:, better], best_error[better] = solution[:, better], errors[better]
    return best


def _descend(
    gram: FloatArray, moment: FloatArray, penalty: FloatArray, start: FloatArray
) -> FloatArray:
    solution = start.copy()
    for _ in range(_MOST_SWEEPS):
        largest_step = 0.0
        for i, square in enumerate(np.diag(gram)):
            if square <= 0:
                continue
            pull = moment[i] - gram[i] @ solution + square * solution[i]
            new = np.sign(pull) * np.maximum(np.abs(pull) - penalty, 0.0) / square
            largest_step = max(largest_step, float(np.max(np.abs(new - solution[i]))))
            solution[i] = new
        if largest_step < _ACCURACY:
            break
    return solution
