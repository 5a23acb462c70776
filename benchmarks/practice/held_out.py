"""How a reward model ranks answers to held-out prompts, compared with people and annotators.

Every two of a prompt's sampled answers make a pair. "People" are the tiny world's human, whom no
model has seen; annotators are those whose preferences the reward models are trained on.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import exp
from statistics import fmean

import polars as pl

from lpfloop.loop.library.read_only_run import ReadOnlyRun
from lpfloop.loop.tiny.annotators import TASTES, appeal
from lpfloop.loop.tiny.human import score
from lpfloop.policies.trainers.length_bias import LengthBucket, RankedPair, length_correlations

NEUTRAL = 1
"""The largest difference in tokens at which a pair says nothing about length."""
FEWEST = 100
"""The fewest held-out pairs that make a bucket's figure meaningful."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A sampled answer, its reward, its tokens, and how much people like it."""

    instruction: str
    text: str
    reward: float
    tokens: int
    liked: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Two:
    """Two answers to one prompt; `shorter` may be of equal length."""

    longer: Answer
    shorter: Answer

    @property
    def difference(self) -> int:
        """How many more tokens the longer answer has."""
        return self.longer.tokens - self.shorter.tokens

    @property
    def ahead(self) -> float:
        """How much higher the reward model scores the longer answer."""
        return self.longer.reward - self.shorter.reward

    @property
    def better(self) -> float:
        """How much more people like the longer answer."""
        return self.longer.liked - self.shorter.liked


def answers(run: ReadOnlyRun) -> Mapping[str, Sequence[Answer]]:
    """Return the rewarded samples of held-out prompts, by prompt, in the order of their ids."""
    prompts = run.prompts().filter(pl.col("split") == "held-out").unique("prompt_id")
    rows = (
        run.candidates()
        .filter(pl.col("kind") == "sample", pl.col("finish_reason") == "stop")
        .join(run.rewards().filter(pl.col("status") == "scored"), on="candidate_id")
        .join(prompts, on="prompt_id")
        .unique("candidate_id")
        .sort("prompt_id", "candidate_id")
        .select("prompt_id", "messages", "text", "score", "completion_tokens")
        .collect()
    )
    found: dict[str, list[Answer]] = {}
    for prompt_id, messages, text, reward, tokens in rows.iter_rows():
        asked = messages[-1]["content"]
        found.setdefault(prompt_id, []).append(
            Answer(
                instruction=asked,
                text=text,
                reward=reward,
                tokens=tokens,
                liked=score(asked, text),
            )
        )
    return found


def pairs(by_prompt: Mapping[str, Sequence[Answer]]) -> list[Two]:
    """Return every two answers of a prompt that people do not like equally."""
    return [
        Two(longer=a, shorter=b) if a.tokens >= b.tokens else Two(longer=b, shorter=a)
        for of in by_prompt.values()
        for a, b in combinations(of, 2)
        if a.liked != b.liked
    ]


def accuracy(two: Sequence[Two]) -> float:
    """Return the share of pairs that the reward model ranks as people do."""
    return fmean(1.0 if t.ahead * t.better > 0 else 0.5 * (t.ahead == 0) for t in two)


def neutral(two: Sequence[Two]) -> list[Two]:
    """Return the pairs that say nothing about length."""
    return [t for t in two if t.difference <= NEUTRAL]


def correlations(two: Sequence[Two], width: int) -> dict[LengthBucket, float]:
    """Return the correlation of reward with length per bucket, given annotators' preferences."""
    ranked = list(_preferred(two))
    counts = [abs(pair.longer) for pair in ranked]
    return {
        bucket: value
        for bucket, value in length_correlations(ranked, width).items()
        if value is not None and sum(bucket.least <= c <= bucket.most for c in counts) >= FEWEST
    }


def _preferred(two: Sequence[Two]) -> Iterator[RankedPair]:
    """Let an annotator, drawn at random, choose one answer of each pair."""
    rng = random.Random("annotators of held-out pairs")
    for t in two:
        sign = 1 if rng.random() < _likely(t) else -1
        yield RankedPair(margin=sign * t.ahead, longer=sign * t.difference)


def _likely(two: Two) -> float:
    """Return the probability with which an annotator prefers the longer answer."""
    chances = list[float]()
    for taste in TASTES.values():
        of = [appeal(taste, two.longer.instruction, a.text) for a in (two.longer, two.shorter)]
        for place in (taste.shown_first, -taste.shown_first):
            chances.append(1 / (1 + exp(-(of[0] - of[1] + place) / taste.noise)))
    return fmean(chances)
