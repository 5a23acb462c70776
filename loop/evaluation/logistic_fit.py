"""A logistic regression of few coefficients, with a normal prior and weighted observations."""

import numpy as np

from ..lake.statistics.bootstrap import Numbers

NEWTON_STEPS = 100
LONGEST_STEP = 2.0
TOLERANCE = 1e-9
RIDGE = 1e-9


def penalised(
    features: Numbers, targets: Numbers, weights: Numbers, mean: Numbers, precision: Numbers
) -> Numbers:
    """Return w of the least cross-entropy + (w - mean)' precision (w - mean) / 2, by Newton steps.

    Args:
        features: one row a comparison, one column a coefficient; the first, of 1, is not penalised.
        targets: probabilities, from 0 to 1.
        weights: how often each comparison counts.
        mean: of the prior.
        precision: of the prior.
    """
    won, there = float(weights @ targets), float(weights.sum())
    found = mean.copy()
    if not 0 < won < there:
        # Nothing holds theta, whose limit this is to all digits.
        found[0] = np.inf if won else -np.inf
        return found
    # Apart, as a quotient of shares near 0 or 1 may be 0.
    found[0] = np.log(won) - np.log(there - won)
    for _ in range(NEWTON_STEPS):
        missed = weights * (sigmoid(features @ found) - targets)
        gradient = features.T @ missed + precision @ (found - mean)
        bent = _curvature(features, found, weights) + precision + RIDGE * np.eye(len(found))
        step = np.linalg.solve(bent, gradient)
        # Far from the optimum a whole step of Newton's may go astray.
        longest = float(np.abs(step).max())
        found = found - step * min(1.0, LONGEST_STEP / longest if longest else 1.0)
        if longest < TOLERANCE:
            break
    return found


def information(features: Numbers, at: Numbers, weights: Numbers) -> float:
    """Return the data's information on the second coefficient when the others are free."""
    bent = _curvature(features, at, weights) + RIDGE * np.eye(len(at))
    return max(float(1 / np.linalg.inv(bent)[1, 1]), 0.0)


def sigmoid(logits: Numbers) -> Numbers:
    """Return the logistic function."""
    return np.exp(-np.logaddexp(0, -logits))


def _curvature(features: Numbers, at: Numbers, weights: Numbers) -> Numbers:
    predicted = sigmoid(features @ at)
    return (features.T * (weights * predicted * (1 - predicted))) @ features
