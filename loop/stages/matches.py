"""The choice of answers to compare, and the matches that are decided without an annotator.

The draws are seeded (`critics.annotators.simulate`): which two answers, in which order they are
shown, and when a coin replaces the annotator. Answers that differ only in white space are a tie.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

from ...configs.annotation import Keying, Ordering
from ...critics.annotators.simulate import coin, draw_key, shown_swapped
from ...critics.status import Status
from ...stores.keys import derive_seed, row_id
from ...stores.records import Candidate, Order, Preferred


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Two answers to one prompt that are to be compared; `drawn_by` is the key of all draws."""

    first: Candidate
    second: Candidate
    drawn_by: str


class Decided(NamedTuple):
    """The outcome of a match without an annotator; `flipped` if a coin decided it."""

    preferred: Preferred | None
    status: Status = Status.SCORED
    flipped: bool = False


def match_of(first: Candidate, second: Candidate, keyed_on: Keying) -> Match:
    """Return the match of two answers."""
    pair = row_id("match", [first.candidate_id, second.candidate_id])
    drawn_by = draw_key(keyed_on, pair=pair, instruction=first.prompt_id)
    return Match(first=first, second=second, drawn_by=drawn_by)


def decide_match(match: Match, seed: int, flip_probability: float) -> Decided | None:
    """Return the outcome of a match without an annotator; None if one must decide."""
    if "failed" in (match.first.finish_reason, match.second.finish_reason):
        # A failed request gave nothing that could be preferred.
        return Decided(None, Status.FAILED)
    if _normal(match.first) == _normal(match.second):
        return Decided("tie")
    tossed = coin(match.drawn_by, seed, flip_probability)
    return None if tossed is None else Decided(tossed, flipped=True)


def orders_of(match: Match, seed: int, order: Ordering) -> tuple[Order, ...]:
    """Return the orders in which an annotator sees a match."""
    if order == "both":
        return ("as_given", "swapped")
    return ("swapped" if shown_swapped(match.drawn_by, seed) else "as_given",)


def drawn_pairs(
    candidates: Sequence[Candidate], seed: int, *, cut: bool = False
) -> list[tuple[Candidate, Candidate]]:
    """Return one pair per prompt: two usable candidates with different texts, drawn at random.

    With `cut`, truncated candidates are usable, too.

    A pair keeps the order of `candidates`. If all texts of a prompt are equal (ignoring white
    space), its first two candidates are the pair; a prompt with fewer than two gets no pair.
    """
    pairs = list[tuple[Candidate, Candidate]]()
    for usable, texts in _comparable(candidates, cut=cut):
        seeded = random.Random(derive_seed(seed, "match", [c.candidate_id for c in usable]))
        if len(texts) > 1:
            first, second = sorted(seeded.sample(range(len(texts)), 2))
            pairs.append((texts[first], texts[second]))
    return pairs


def all_pairs(
    candidates: Sequence[Candidate], *, cut: bool = False
) -> list[tuple[Candidate, Candidate]]:
    """Return every two usable candidates of a prompt whose texts differ; each text is used once.

    Pairs keep the order of `candidates`. If all texts of a prompt are equal (ignoring white space),
    its first two candidates are the only pair, as in `drawn_pairs`.
    """
    found = _comparable(candidates, cut=cut)
    return [pair for _, texts in found for pair in combinations(texts, 2)]


def _comparable(
    candidates: Sequence[Candidate], *, cut: bool
) -> Iterator[tuple[list[Candidate], list[Candidate]]]:
    """Yield each prompt's usable candidates, and the first one of each text.

    If there is one text only, its first two candidates represent it.
    """
    by_prompt: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        if candidate.usable or (cut and candidate.cut):
            by_prompt.setdefault(candidate.prompt_id, []).append(candidate)
    for usable in by_prompt.values():
        texts = dict[str, Candidate]()
        for candidate in usable:
            texts.setdefault(_normal(candidate), candidate)
        yield usable, list(texts.values()) if len(texts) > 1 else usable[:2]


def _normal(candidate: Candidate) -> str:
    """Return a text with its white space normalised: answers that differ in it alone are one."""
    return " ".join(candidate.text.split())
