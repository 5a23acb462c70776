"""The length-controlled win-rate: how often a model would win if its answers were as long.

Length-controlled AlpacaEval (Dubois et al. 2024) fits a logistic model of a judge's preferences,
    logit P(model wins on x) = theta + phi * tanh(delta(x) / std(delta)) + psi * difficulty(x),
where delta is the difference of the answers' lengths in characters, and predicts at delta = 0. Its
loss is the cross-entropy of the preferences as probabilities with an L1 penalty on phi, whose
strength five folds of prompts choose from ten.

It differs from AlpacaEval's own program in two parts, for which that downloads data: there is no
difficulty term (the difficulty of its 805 instructions comes from its leaderboard), and no pull
towards the answers of a verbose and a terse baseline (two gamed copies of GPT-4, weight 0.2). Theta
is not penalised: on a few dozen prompts the penalty would draw every win-rate to 50 percent, while
here, without an effect of length, the result is the win-rate itself. So results are close to
AlpacaEval's, not equal.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..lake.statistics.bootstrap import Indices, Numbers, numbered, resamples

FOLDS = 5
STRENGTHS = np.logspace(-4, 4, 10)
"""C: how much the data weigh against the penalty."""
DRAWS = 200
"""Bootstrap resamples."""
NEWTON_STEPS, INNER_STEPS = 100, 200
TOLERANCE = 1e-10
RIDGE = 1e-9
SUFFICIENT = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthControlled:
    """A length-controlled win-rate in percent; its standard error is that of a bootstrap.

    `length_effect` is phi: above 0, the judge prefers the longer answer.
    """

    win_rate: float
    standard_error: float
    length_effect: float


def length_controlled(
    won: Sequence[float],
    longer_by: Sequence[int],
    prompts: Sequence[str],
    *,
    seed: int = 0,
) -> LengthControlled | None:
    """Return the model's win-rate at equal lengths; None with fewer than 5 prompts.

    Args:
        won: the model's share of each win, from 0 to 1.
        longer_by: how many characters the model's answer has more than the reference's.
        prompts: the prompt of each comparison.
        seed: of the bootstrap.
    """
    folds = _folds(prompts)
    if folds is None:
        return None
    lengths = np.asarray(longer_by, dtype=float)
    spread = float(lengths.std(ddof=1))
    scaled = np.tanh(lengths / spread) if spread else np.zeros_like(lengths)
    features = np.column_stack([np.ones_like(scaled), scaled])
    targets = np.asarray(won, dtype=float)
    strength = _chosen_strength(features, targets, folds)

    def rate(times: Indices) -> float:
        """Return the rate where each comparison is there so many times."""
        held = np.repeat(features, times, axis=0), np.repeat(targets, times)
        return 100 * float(_sigmoid(fit(*held, strength)[:1])[0])

    theta, phi = fit(features, targets, strength)
    about = numbered(prompts)
    blocks = resamples(int(about.max()) + 1, draws=DRAWS, seed=seed)
    rates = [rate(held[about]) for block in blocks for held in block]
    return LengthControlled(
        win_rate=100 * float(_sigmoid(np.array([theta]))[0]),
        standard_error=float(np.std(rates, ddof=1)),
        length_effect=float(phi),
    )


def fit(features: Numbers, targets: Numbers, strength: float) -> Numbers:
    """Return w that minimises |w_1| + |w_2| .. + C * cross-entropy, by proximal Newton steps.

    Args:
        features: one row a comparison, one column a coefficient; the first is not penalised.
        targets: probabilities, from 0 to 1.
        strength: C.
    """
    penalty = np.full(features.shape[1], 1 / strength)
    penalty[0] = 0.0
    weights = np.zeros(features.shape[1])
    loss = _loss(features, targets, weights, penalty)
    for _ in range(NEWTON_STEPS):
        predicted = _sigmoid(features @ weights)
        gradient = features.T @ (predicted - targets)
        curvature = (features.T * (predicted * (1 - predicted))) @ features
        curvature += RIDGE * np.eye(len(weights))
        step = _proximal_step(weights, gradient, curvature, penalty)
        gain = gradient @ step + penalty @ (np.abs(weights + step) - np.abs(weights))
        if -gain < TOLERANCE:
            # This close, Newton's step is exact, and the loss is too flat for a line search.
            return weights + step
        size = 1.0
        while True:
            reached = _loss(features, targets, weights + size * step, penalty)
            if reached <= loss + SUFFICIENT * size * gain or size < TOLERANCE:
                break
            size /= 2
        weights, loss = weights + size * step, reached
    return weights


def _proximal_step(
    weights: Numbers, gradient: Numbers, curvature: Numbers, penalty: Numbers
) -> Numbers:
    """Return the step that minimises the quadratic model plus penalty, by coordinate descent."""
    step = np.zeros_like(weights)
    for _ in range(INNER_STEPS):
        moved = 0.0
        for j in range(len(weights)):
            bend = curvature[j, j]
            slope = gradient[j] + curvature[j] @ step - bend * step[j]
            aim = bend * weights[j] - slope
            new = np.sign(aim) * max(abs(aim) - penalty[j], 0.0) / bend - weights[j]
            moved = max(moved, abs(float(new - step[j])))
            step[j] = new
        if moved < TOLERANCE:
            break
    return step


def _loss(features: Numbers, targets: Numbers, weights: Numbers, penalty: Numbers) -> float:
    return float(penalty @ np.abs(weights)) + _cross_entropy(features, targets, weights)


def _cross_entropy(features: Numbers, targets: Numbers, weights: Numbers) -> float:
    logits = features @ weights
    return float(np.sum(np.logaddexp(0, logits) - targets * logits))


def _sigmoid(logits: Numbers) -> Numbers:
    return np.exp(-np.logaddexp(0, -logits))


def _folds(prompts: Sequence[str]) -> Indices | None:
    """Return the fold of each comparison, those of a prompt in one; None with too few prompts."""
    numbers = {prompt: number for number, prompt in enumerate(dict.fromkeys(prompts))}
    if len(numbers) < FOLDS:
        return None
    return np.array([numbers[prompt] % FOLDS for prompt in prompts], dtype=np.int64)


def _chosen_strength(features: Numbers, targets: Numbers, folds: Indices) -> float:
    """Return the C under which held-out prompts are predicted best."""

    def missed(strength: float) -> float:
        """Return the mean over the folds of the mean cross-entropy."""
        total = 0.0
        for number in range(FOLDS):
            out = folds == number
            weights = fit(features[~out], targets[~out], strength)
            total += _cross_entropy(features[out], targets[out], weights) / int(out.sum())
        return total / FOLDS

    return float(min(STRENGTHS, key=missed))
