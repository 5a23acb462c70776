# pyright: basic
"""A reward model's ranking of answers to held-out prompts, compared with people and annotators.

Every two of a prompt's sampled answers make a pair. "People" are the tiny world's human, whom no
model has seen; annotators give the preferences that train the reward models.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import exp
from statistics import fmean

import polars as pl

from lpfloop.loop.data.splits import HELD_OUT
from lpfloop.loop.lake.query.figures import NotMeasuredError
from lpfloop.loop.tiny.annotators import TASTES, appeal
from lpfloop.loop.tiny.human import score
from lpfloop.policies.trainers.length_bias import (
    LengthBucket,
    RankedPair,
    length_correlation,
    length_correlations,
)
from lpfloop.stores.lake import RunReader
from lpfloop.stores.records import SCORED

FEWEST = 60
"""Minimal number of held-out pairs for a meaningful figure of a bucket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardedAnswer:
    """A sampled answer, its reward, its tokens, and its appeal to people."""

    instruction: str
    text: str
    reward: float
    tokens: int
    liked: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPair:
    """Two answers to one prompt; `shorter` may be of equal length."""

    longer: RewardedAnswer
    shorter: RewardedAnswer

    @property
    def difference(self) -> int:
        """The difference in tokens of the longer answer."""
        return self.longer.tokens - self.shorter.tokens

    @property
    def ahead(self) -> float:
        """The reward's difference in favour of the longer answer."""
        return self.longer.reward - self.shorter.reward

    @property
    def better(self) -> float:
        """People's preference for the longer answer."""
        return self.longer.liked - self.shorter.liked


def held_out_pairs(run: RunReader) -> list[AnswerPair]:
    """Return every two rewarded samples of a held-out prompt that people do not like equally.

    Raises:
        NotMeasuredError: if no two samples qualify.
    """
    prompts = run.scan("prompts").filter(pl.col("split") == HELD_OUT).unique("prompt_id")
    sampled = run.scan("candidates").filter(
        pl.col("kind") == "sample", pl.col("finish_reason") == "stop"
    )
    rewards = run.scan("rewards").filter(pl.col("status") == SCORED)
    pairs = paired(
        sampled.join(rewards.select("candidate_id", "score"), on="candidate_id")
        .join(prompts.select("prompt_id", "messages"), on="prompt_id")
        .unique("candidate_id")
        .collect()
    )
    if not pairs:
        raise NotMeasuredError(f"run {run.folder.name} has no rewarded answers to held-out prompts")
    return pairs


def paired(rows: pl.DataFrame) -> list[AnswerPair]:
    """Return the pairs of answers: rows with `messages`, `text`, `score`, `completion_tokens`."""
    found = dict[str, list[RewardedAnswer]]()
    ordered = rows.sort("prompt_id", "candidate_id")
    columns = ("prompt_id", "messages", "text", "score", "completion_tokens")
    for prompt_id, messages, text, reward, tokens in ordered.select(columns).iter_rows():
        asked = messages[-1]["content"]
        answer = RewardedAnswer(
            instruction=asked, text=text, reward=reward, tokens=tokens, liked=score(asked, text)
        )
        found.setdefault(prompt_id, []).append(answer)
    return [
        AnswerPair(longer=a, shorter=b) if a.tokens >= b.tokens else AnswerPair(longer=b, shorter=a)
        for of in found.values()
        for a, b in combinations(of, 2)
        if a.liked != b.liked
    ]


def agreement(pairs: Sequence[AnswerPair]) -> float:
    """Return the percentage of pairs on which reward model and people agree; ties count half."""
    right = fmean(1.0 if p.ahead * p.better > 0 else 0.5 * (p.ahead == 0) for p in pairs)
    return 100 * right


def equally_long(pairs: Sequence[AnswerPair], within: int) -> list[AnswerPair]:
    """Return the pairs whose lengths differ by so many tokens at most."""
    return [pair for pair in pairs if pair.difference <= within]


def length_bias(pairs: Sequence[AnswerPair]) -> float | None:
    """Return the correlation of reward with length over all pairs; None if undefined."""
    return length_correlation(list(_preferred(pairs)))


def bias_by_difference(pairs: Sequence[AnswerPair], width: int) -> Mapping[LengthBucket, float]:
    """Return the correlation by difference in length, for lengths with enough pairs."""
    counts = [pair.difference for pair in pairs]
    return {
        bucket: value
        for bucket, value in length_correlations(_preferred(pairs), width).items()
        if value is not None and sum(bucket.least <= c <= bucket.most for c in counts) >= FEWEST
    }


def _preferred(pairs: Sequence[AnswerPair]) -> Iterator[RankedPair]:
    """Choose one answer of each pair, as an annotator drawn at random would."""
    rng = random.Random("annotators of held-out pairs")
    for pair in pairs:
        sign = 1 if rng.random() < _likely(pair) else -1
        yield RankedPair(margin=sign * pair.ahead, longer=sign * pair.difference)


def _likely(pair: AnswerPair) -> float:
    """Return the probability that an annotator prefers the longer answer."""
    chances = list[float]()
    for taste in TASTES.values():
        longer, shorter = (
            appeal(taste, pair.longer.instruction, answer.text)
            for answer in (pair.longer, pair.shorter)
        )
        for place in (taste.shown_first, -taste.shown_first):
            chances.append(1 / (1 + exp(-(longer - shorter + place) / taste.noise)))
    return fmean(chances)
