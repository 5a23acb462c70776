"""The length-controlled win-rate: how often a model would win if its answers were as long.

Length-controlled AlpacaEval (Dubois et al. 2024) fits a logistic model of a judge's preferences,
    logit P(model wins on x) = theta + phi * tanh(delta(x) / std(delta)) + psi * difficulty(x),
where delta is the difference of the answers' lengths in characters, and predicts at delta = 0.

If nearly all answers are shorter than the reference's, as weak models' answers are, the data hardly
separate theta from phi: a free phi moves the figure by many points. So phi has a prior, made of
AlpacaEval's published fits (`published_lengths`). Its own program does the same by other means: it
adds comparisons of a verbose and a terse copy of its baseline, of weight 0.2, and a light L1
penalty. If difficulties are given, this fit is pulled as those comparisons pull; without them, the
slope of length also takes up what belongs to difficulty, and is held closer to the published ones.
Theta is free: if all answers are as long as the reference's, the figure is the win-rate.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..lake.statistics.bootstrap import Indices, Numbers, numbered, resamples
from .logistic_fit import information, penalised, sigmoid
from .published_lengths import (
    DIFFICULTY,
    HIGHEST,
    LOWEST,
    alpaca_pull,
    centre,
    precision,
    strengthened,
)

FEWEST = 5
"""Fewer prompts are not fitted."""
FEW = 100
"""With fewer prompts, a remark warns that the figure leans on the published fits."""
ONE_SIDED = 0.05
"""If a smaller share of the answers is longer, or shorter, equal lengths are extrapolated."""
CHANGED_BY, CHANGED_SHARE = 10, 4
"""AlpacaEval's marks of a fit that may have failed: a change by 10 points, and by a quarter."""
PERCENT = 100
DRAWS = 200
"""Bootstrap resamples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthControlled:
    """A length-controlled win-rate, from 0 to 1.

    Its standard error is from a bootstrap in which each resample also draws the published effect of
    length. `length_effect` is phi: above 0, the judge prefers the longer answer. `from_data` is the
    share of it that these comparisons decided; the rest are published fits. `remarks` are whole
    sentences on why the figure is to be taken with care.
    """

    win_rate: float
    standard_error: float
    length_effect: float
    from_data: float
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncontrolled:
    """Why the length-controlled win-rate is missing."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Comparisons with one reference; each field has one value a comparison.

    `won` is the model's share of the win, from 0 to 1, `longer_by` how many characters its answer
    has more than the reference's. `prompts` are drawn together, or their `clusters` if given.
    `difficulty` is the instruction's.
    """

    won: Sequence[float]
    longer_by: Sequence[int]
    prompts: Sequence[str]
    clusters: Sequence[str] | None = None
    difficulty: Sequence[float] | None = None


def length_controlled(compared: Compared, *, seed: int = 0) -> LengthControlled | Uncontrolled:
    """Return the model's win-rate at equal lengths, or why it is missing."""
    reason = _refusal(compared)
    if reason is not None:
        return Uncontrolled(reason=reason)
    model = _Model.of(compared).against_confounding()
    fitted = model.fit()
    about = numbered(compared.clusters or compared.prompts)
    generator = np.random.default_rng(seed)
    rates = [
        model.rate(model.fit(held[about], generator), held[about])
        for block in resamples(int(about.max()) + 1, draws=DRAWS, seed=seed)
        for held in block
    ]
    rate = model.rate(fitted)
    return LengthControlled(
        win_rate=rate / PERCENT,
        standard_error=float(np.std(rates, ddof=1)) / PERCENT,
        length_effect=float(fitted[1]),
        from_data=model.from_data(fitted),
        remarks=tuple(_remarks(compared, rate)),
    )


def _refusal(compared: Compared) -> str | None:
    won, apart = np.asarray(compared.won, dtype=float), np.asarray(compared.longer_by)
    prompts = len(set(compared.prompts))
    if prompts < FEWEST:
        return f"{prompts} prompts are too few to tell an effect of length; it takes {FEWEST}"
    if len(set(compared.clusters or compared.prompts)) <= 1:
        return "all prompts are of one cluster, so that nothing tells how sure a figure is"
    if not 0 < won.sum() < len(won):
        every = "lost" if not won.sum() else "won"
        return (
            f"every comparison was {every}, so that nothing tells an effect of length from quality"
        )
    if apart.any() and not np.ptp(apart):
        return (
            f"every answer differs in length by the same {apart[0]:+,} characters, so that nothing "
            "tells how much that is"
        )
    return None


def _remarks(compared: Compared, rate: float) -> list[str]:
    """Return remarks if the figure is an extrapolation, or leans on others' judges."""
    apart = np.asarray(compared.longer_by)
    raw = float(np.mean(compared.won))
    prompts = len(set(compared.prompts))
    told = list[str]()
    for name, share in (("longer", (apart > 0).mean()), ("shorter", (apart < 0).mean())):
        if apart.any() and share < ONE_SIDED:
            told.append(
                f"only {share:.0%} of the answers are {name} than the reference's, so the figure "
                "at equal lengths extrapolates"
            )
    if apart.any() and prompts < FEW:
        told.append(
            f"{prompts} prompts tell little of this judge's liking for length, so the figure leans "
            "on that of AlpacaEval's judge"
        )
    if not LOWEST <= raw <= HIGHEST:
        told.append(
            f"a win-rate of {raw:.1%} is outside those that the published fits are of "
            f"({LOWEST:.1%} to {HIGHEST:.1%}), so the effect of length is an extrapolation"
        )
    if _suspect(100 * raw, rate):
        told.append(
            f"the figure is farther from the win-rate of {raw:.1%} than AlpacaEval takes for "
            "plausible, so the fit may have failed"
        )
    return told


def _suspect(raw: float, rate: float) -> bool:
    low = min(raw - raw / CHANGED_SHARE, raw - CHANGED_BY)
    high = max(raw + (100 - raw) / CHANGED_SHARE, raw + CHANGED_BY)
    return not low <= rate <= high


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    """The features of comparisons, whose first is 1 and whose second is length; and the prior.

    `confounded`: difficulty is left out.
    """

    features: Numbers
    targets: Numbers
    mean: Numbers
    precision: Numbers
    confounded: bool

    @classmethod
    def of(cls, compared: Compared) -> "_Model":
        won = np.asarray(compared.won, dtype=float)
        lengths = np.asarray(compared.longer_by, dtype=float)
        columns = [np.ones_like(won), np.tanh(_in_units_of(lengths.std(ddof=1), lengths))]
        hard = _standardised(compared.difficulty)
        if hard is None:
            mean, pull = np.array([centre(float(won.mean()))]), np.array([[precision()]])
        else:
            columns.append(hard)
            mean, pull = alpaca_pull()
        return cls(
            features=np.column_stack(columns),
            targets=won,
            mean=np.concatenate([[0.0], mean]),
            precision=_beside_free(pull),
            confounded=hard is None,
        )

    def fit(
        self, times: Indices | None = None, generator: np.random.Generator | None = None
    ) -> Numbers:
        """Return theta, phi and psi.

        Comparisons are weighted by `times`; a `generator` draws the prior's mean.
        """
        weights = self._each if times is None else times.astype(float)
        mean = self.mean if generator is None else self._drawn(generator)
        return penalised(self.features, self.targets, weights, mean, self.precision)

    def against_confounding(self) -> "_Model":
        """Return the model with a prior that also holds against difficulty, if that is left out."""
        if not self.confounded:
            return self
        held = strengthened(information(self.features, self.fit(), self._each))
        return replace(self, precision=_beside_free(np.array([[held]])))

    def rate(self, fitted: Numbers, times: Indices | None = None) -> float:
        """Return the mean of the predictions at equal lengths, in percent."""
        at_zero = self.features.copy()
        at_zero[:, 1] = 0
        return 100 * float(np.average(sigmoid(at_zero @ fitted), weights=times))

    def from_data(self, fitted: Numbers) -> float:
        """Return which share of the information on phi comes from the comparisons."""
        told = information(self.features, fitted, self._each)
        return told / (told + float(self.precision[1, 1]))

    @property
    def _each(self) -> Numbers:
        return np.ones(len(self.targets))

    def _drawn(self, generator: np.random.Generator) -> Numbers:
        spread = (
            np.array([[1 / precision()]])
            if self.confounded
            else np.linalg.inv(self.precision[1:, 1:])
        )
        drawn = generator.multivariate_normal(self.mean[1:], spread)
        return np.concatenate([[0.0], drawn])


def _beside_free(pull: Numbers) -> Numbers:
    """Return a precision that leaves theta free."""
    whole = np.zeros((len(pull) + 1, len(pull) + 1))
    whole[1:, 1:] = pull
    return whole


def _standardised(difficulty: Sequence[float] | None) -> Numbers | None:
    """Return difficulties with AlpacaEval's mean and spread; None if they do not differ."""
    values = np.asarray(difficulty if difficulty is not None else [0.0, 0.0], dtype=float)
    spread = float(values.std(ddof=1))
    return None if not spread else DIFFICULTY * (values - values.mean()) / spread


def _in_units_of(spread: float, values: Numbers) -> Numbers:
    return values / spread if spread else np.zeros_like(values)
