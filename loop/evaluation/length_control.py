"""The length-controlled win-rate: how often a model would win if its answers were as long.

Length-controlled AlpacaEval (Dubois et al. 2024) fits a logistic model of a judge's preferences,
    logit P(model wins on x) = theta + phi * tanh(delta(x) / std(delta)) + psi * difficulty(x),
where delta is the difference of the answers' lengths in characters, and predicts at delta = 0. Here
difficulty is left out: it is known for AlpacaEval's own instructions alone.

If nearly all answers are shorter than the reference's, as weak models' answers are, the data hardly
separate theta from phi: a free phi moves the figure by many points. So phi has a normal prior, made
of AlpacaEval's published fits. Theta is free: if all answers are as long as the reference's, the
figure is the win-rate.

The fits are of 183 models (github.com/tatsu-lab/alpaca_eval, metrics/weights/
weighted_alpaca_eval_gpt4_turbo/length_controlled_v1, commit 01f3cb2; win-rates and lengths:
package alpaca_eval 0.6.6, leaderboards/data_AlpacaEval_2):

- phi has mean 1.55. It falls with the win-rate: a least-squares line is 1.19 - 0.20 *
  logit(win-rate), from which the models' standard deviation is 0.28.
- Two more boards, of Claude 3 Opus and Mistral Large, are in that package: between a model's
  win-rate and its length-controlled one they move 1.02 to 1.38 times as many logits as GPT-4 Turbo.
  The ten ratios have standard deviation 0.11, or 0.17 of phi.
- logit(length-controlled win-rate) is 0.74 * theta - 0.06 over the 183: if difficulty is left out,
  all coefficients shrink by this factor.

One number is an assumption: if answers are shorter on instructions that are harder to win, the
slope of a fit without difficulty is biased for any number of prompts. With psi * difficulty of 0.92
* 1.45 logits and a correlation of 0.3 between difficulty and length the bias is about 0.5.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...stores.records import Evaluation, Preference, Score
from ..lake.statistics.clustered_estimates import Indices, Numbers, number_clusters, sum_by_cluster
from ..run.iteration import Iteration
from ..run.reporter import RunWarnings
from .metrics import Clusters, number_of, score_of

WIN_RATE, LENGTH_CONTROLLED = "win_rate", "length_controlled_win_rate"
WON: Mapping[str, float] = {"first": 0.0, "tie": 0.5, "second": 1.0}
"""The policy's share of the win; its answer is the second."""


def win_scores(it: Iteration, benchmark: str, preferences: Iterable[Preference]) -> Iterator[Score]:
    """Yield the score of each answer that was compared, unless the verdict was not read."""
    for row in preferences:
        if row.preferred is not None:
            won, prompt, answer = WON[row.preferred], row.prompt_id, row.second_id
            yield score_of(it, benchmark, WIN_RATE, won, prompt=prompt, candidate=answer)


def at_equal_lengths(
    it: Iteration,
    benchmark: str,
    clusters: Clusters,
    preferences: Sequence[Preference],
    lengths: Mapping[str, int],
) -> list[Evaluation]:
    """Return the win-rate at equal lengths, from 0 to 1.

    `lengths` are the compared answers' lengths, in letters.
    """
    from .length_control import Compared, Uncontrolled, length_controlled

    read = [row for row in preferences if row.preferred is not None]
    if not read:
        return []
    compared = Compared(
        won=[WON[row.preferred] for row in read if row.preferred is not None],
        longer_by=[lengths[row.second_id] - lengths[row.first_id] for row in read],
        prompts=[row.prompt_id for row in read],
        clusters=[clusters.get(row.prompt_id, row.prompt_id) for row in read],
    )
    found = length_controlled(compared)
    remarks = RunWarnings(it.run.store, it.number, f"assess:{benchmark}")
    if isinstance(found, Uncontrolled):
        remarks.note({f"no win-rate at equal lengths: {found.reason}"})
        return []
    remarks.note({f"the win-rate at equal lengths: {remark}" for remark in found.remarks})
    rate, error = found.win_rate, found.standard_error
    return [number_of(it, benchmark, LENGTH_CONTROLLED, rate, stderr=error, n=len(read))]


LINE = (1.19, -0.20)
"""phi for a win-rate of a half, and by how much it grows with its logit."""
MODELS, JUDGES = 0.28, 0.17
"""Standard deviations of phi between models and between judges."""
LEFT_OUT = 0.74
"""The factor by which coefficients shrink without difficulty."""
CONFOUNDED = 0.5
"""Standard deviation of the bias of length's slope when difficulty is left out."""
LOWEST, HIGHEST = 0.018, 0.778
"""The win-rates that the published fits are of."""
SPREAD = LEFT_OUT * float(np.hypot(MODELS, JUDGES))
"""Standard deviation of phi about its published value."""
FEWEST = 5
"""Fewer prompts are not fitted."""
FEW = 100
"""With fewer prompts, a remark warns that the figure leans on the published fits."""
ONE_SIDED = 0.05
"""If a smaller share of the answers is longer, or shorter, equal lengths are extrapolated."""
NEWTON_STEPS, LONGEST_STEP, TOLERANCE, RIDGE = 100, 2.0, 1e-9, 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthControlled:
    """A length-controlled win-rate, from 0 to 1.

    Its standard error is that of comparisons in clusters and of the published effect of length.
    `length_effect` is phi: above 0, the judge prefers the longer answer. `remarks` are whole
    sentences on why the figure is to be taken with care.
    """

    win_rate: float
    standard_error: float
    length_effect: float
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncontrolled:
    """Why the length-controlled win-rate is missing."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Comparisons with one reference; each field has one value a comparison.

    `won` is the model's share of the win, from 0 to 1, `longer_by` how many characters its answer
    has more than the reference's. Comparisons of one of the `prompts`, or of its `clusters` if
    given, depend on each other.
    """

    won: Sequence[float]
    longer_by: Sequence[int]
    prompts: Sequence[str]
    clusters: Sequence[str] | None = None


def length_controlled(compared: Compared) -> LengthControlled | Uncontrolled:
    """Return the model's win-rate at equal lengths, or why it is missing."""
    reason = _refusal(compared)
    if reason is not None:
        return Uncontrolled(reason=reason)
    won = np.asarray(compared.won, dtype=float)
    lengths = np.asarray(compared.longer_by, dtype=float)
    spread = lengths.std(ddof=1)
    features = np.column_stack(
        [np.ones_like(won), np.tanh(lengths / spread if spread else lengths)]
    )
    each = np.ones(len(won))
    prior = published_slope(float(won.mean()))
    informed = information(features, fit_logistic(features, won, each, prior, SPREAD**-2), each)
    # Any amount of data on a slope that may be confounded leaves it a deviation of `CONFOUNDED`.
    precision = SPREAD**-2 * (1 + informed * CONFOUNDED**2)
    found = fit_logistic(features, won, each, prior, precision)
    about = number_clusters(compared.clusters or compared.prompts)
    rate = float(sigmoid(found[:1])[0])
    return LengthControlled(
        win_rate=rate,
        standard_error=_standard_error(features, won, found, precision, about),
        length_effect=float(found[1]),
        remarks=tuple(_remarks(compared)),
    )


def _standard_error(
    features: Numbers, won: Numbers, found: Numbers, precision: float, about: Indices
) -> float:
    """Return the standard error of the win-rate at equal lengths: of comparisons and of the prior.

    That of comparisons is the sandwich of a logistic regression with clusters.
    """
    held = np.diag([0.0, precision])
    inverse = np.linalg.inv(_curvature(features, found, np.ones(len(won))) + held)
    rate = float(sigmoid(found[:1])[0])
    gradient = rate * (1 - rate) * inverse[0]
    missed = sum_by_cluster(features * (won - sigmoid(features @ found))[:, None], about)
    apart = (missed - missed.mean(axis=0)) @ gradient
    drawn = float(gradient[1]) * precision * SPREAD
    return float(np.sqrt((apart**2).sum() * len(missed) / (len(missed) - 1) + drawn**2))


def published_slope(win_rate: float) -> float:
    """Return phi as published for such a win-rate, without difficulty."""
    held = min(max(win_rate, LOWEST), HIGHEST)
    start, slope = LINE
    return LEFT_OUT * (start + slope * float(np.log(held / (1 - held))))


def fit_logistic(
    features: Numbers, won: Numbers, weights: Numbers, prior: float, precision: float
) -> Numbers:
    """Return the coefficients of a logistic regression by Newton's steps.

    The first feature is 1, and its coefficient is free; the second has a normal prior of mean
    `prior`, others a flat one. `weights` count the comparisons.
    """
    mean = np.zeros(features.shape[1])
    mean[1] = prior
    held = np.zeros((len(mean), len(mean)))
    held[1, 1] = precision
    wins, there = float(weights @ won), float(weights.sum())
    found = mean.copy()
    if not 0 < wins < there:
        # Nothing holds theta, whose limit this is to all digits.
        found[0] = np.inf if wins else -np.inf
        return found
    # Apart, as a quotient of shares near 0 or 1 may be 0.
    found[0] = np.log(wins) - np.log(there - wins)
    for _ in range(NEWTON_STEPS):
        missed = weights * (sigmoid(features @ found) - won)
        gradient = features.T @ missed + held @ (found - mean)
        bent = _curvature(features, found, weights) + held + RIDGE * np.eye(len(found))
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


def _refusal(compared: Compared) -> str | None:
    won, apart = np.asarray(compared.won, dtype=float), np.asarray(compared.longer_by)
    prompts = len(set(compared.prompts))
    if prompts < FEWEST:
        return f"{prompts} prompts are too few to tell an effect of length; it takes {FEWEST}"
    if len(set(compared.clusters or compared.prompts)) <= 1:
        return "all prompts are in one cluster, so that no interval can be computed"
    if not 0 < won.sum() < len(won):
        every = "lost" if not won.sum() else "won"
        return f"every comparison was {every}: effects of length and quality cannot be separated"
    if apart.any() and not np.ptp(apart):
        return (
            f"every answer differs in length by the same {apart[0]:+,} characters, so that nothing "
            "tells how much that is"
        )
    return None


def _remarks(compared: Compared) -> list[str]:
    """Return remarks if the figure is an extrapolation, or leans on others' judges."""
    apart = np.asarray(compared.longer_by)
    prompts = len(set(compared.prompts))
    remarks = list[str]()
    for name, share in (("longer", (apart > 0).mean()), ("shorter", (apart < 0).mean())):
        if apart.any() and share < ONE_SIDED:
            remarks.append(
                f"only {share:.0%} of the answers are {name} than the reference's, so the figure "
                "at equal lengths extrapolates"
            )
    if apart.any() and prompts < FEW:
        remarks.append(
            f"{prompts} prompts tell little of this judge's liking for length, so the figure leans "
            "on that of AlpacaEval's judge"
        )
    return remarks
