"""A reward model's bias for length, measured on pairs by their difference in length.

Pairs are put into buckets by the absolute difference in length of their two answers (ChatGLM-RLHF,
Section 3.3: d = | |y_w| - |y_l| |). Differences are about equal within a bucket, so the correlation
of score with length equals its correlation with being the longer answer.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

NEUTRAL_SHARE = 4
"""Answers count as equally long up to this share of a bucket's width."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class LengthBucket:
    """Differences in length from `least` to `most`, both included."""

    least: int
    most: int

    def __str__(self) -> str:
        """Return the span, as used in names of metrics."""
        return str(self.least) if self.least == self.most else f"{self.least}-{self.most}"


def bucket_of(difference: int, width: int) -> LengthBucket:
    """Return the bucket of a difference: 0 has its own, 1 to `width` the next, and so on."""
    if difference == 0:
        return LengthBucket(least=0, most=0)
    place = (abs(difference) - 1) // width
    return LengthBucket(least=place * width + 1, most=(place + 1) * width)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedPair:
    """A pair of which one answer was preferred.

    `margin` is r(x, y_w) - r(x, y_l); `longer` is |y_w| - |y_l|, in tokens.
    """

    margin: float
    longer: int


def length_correlations(
    pairs: Iterable[RankedPair], width: int
) -> dict[LengthBucket, float | None]:
    """Return the `length_correlation` of each bucket except the one of equal lengths."""
    buckets: dict[LengthBucket, list[RankedPair]] = {}
    for pair in pairs:
        if pair.longer:
            buckets.setdefault(bucket_of(pair.longer, width), []).append(pair)
    return {bucket: length_correlation(own) for bucket, own in sorted(buckets.items())}


def length_correlation(pairs: Sequence[RankedPair]) -> float | None:
    """Return the correlation of the score's difference with which answer is longer.

    It is Pearson's, over both orders of each pair: with D = r(longer) - r(shorter), whose sign
    changes with the order like the length's sign, it is mean(D) / sqrt(mean(D^2)). Pairs whose
    longer answer was preferred and the others each weigh one half in the means, so that preferences
    which favour length do not count as the model's bias: a model that scores the preferred answer
    higher by the same margin, longer or shorter, has 0. One that scores by length alone has 1, or
    -1 if shorter is better.

    None if one of the halves is empty, or all scores are equal; pairs of equal length are left
    out. Its standard error is about 1 / sqrt(len(pairs)) around 0.
    """
    won = [pair.margin for pair in pairs if pair.longer > 0]
    lost = [-pair.margin for pair in pairs if pair.longer < 0]
    if not won or not lost:
        return None
    mean = (fmean(won) + fmean(lost)) / 2
    square = (fmean(d * d for d in won) + fmean(d * d for d in lost)) / 2
    return mean / math.sqrt(square) if square else None


def accuracy(pairs: Sequence[RankedPair]) -> float | None:
    """Return how often the preferred answer has the higher score, equal scores by half."""
    if not pairs:
        return None
    return fmean(1.0 if p.margin > 0 else 0.5 * (p.margin == 0) for p in pairs)


def measure_bias(pairs: Sequence[RankedPair], width: int) -> Mapping[str, float]:
    """Return metrics of pairs: the accuracy, also on neutral ones, and the correlations.

    Neutral pairs have answers of about equal length. `length_correlation` is over all pairs
    together, `length_correlation/1-32` over a bucket. A metric with too few pairs is left out.
    """
    similar = [pair for pair in pairs if abs(pair.longer) <= width // NEUTRAL_SHARE]
    buckets = length_correlations(pairs, width)
    numbers = {
        "accuracy": accuracy(pairs),
        "pairs": float(len(pairs)) if pairs else None,
        "neutral/accuracy": accuracy(similar),
        "neutral/pairs": float(len(similar)) if similar else None,
        "length_correlation": length_correlation(pairs),
        **{f"length_correlation/{bucket}": value for bucket, value in buckets.items()},
    }
    return {name: value for name, value in numbers.items() if value is not None}
