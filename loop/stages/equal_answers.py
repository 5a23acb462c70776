"""Answers to a prompt that say the same: a judge is asked about one of them, for all.

White space does not count, as where pairs are made. Every answer still has a row of its own, which
names the row whose reply it shares.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ...stores.keys import Json
from ...stores.records import Candidate, Receipt
from ..data.receipts import KEPT, receipts
from .ask_judge import JudgeInquiry, S, T

EQUAL = f"{KEPT}: equal to another"
"""The outcome of an answer for which nothing was asked."""

EqualAnswers = Literal["once", "each"]


class DistinctAnswers(NamedTuple):
    """The answers that a judge is shown, and those that say the same as one, by its id."""

    shown: Sequence[Candidate]
    equal: Mapping[str, Sequence[Candidate]]


@dataclass(frozen=True, kw_only=True)
class SharedInquiry(JudgeInquiry[S, T]):
    """What is asked about some answers, and for those that are `equal` to one, by its id."""

    equal: Mapping[str, Sequence[Candidate]] = field(default_factory=dict[str, Sequence[Candidate]])

    def sharing(self, candidate: Candidate) -> Iterator[tuple[Candidate, bool]]:
        """Yield an answer that is shown and those equal to it, and whether they only share."""
        yield candidate, False
        for other in self.equal.get(candidate.candidate_id, ()):
            yield other, True


def asked_once(
    candidates: Sequence[Candidate],
    how: EqualAnswers,
    besides: Callable[[Candidate], str | None] = lambda _: None,
) -> DistinctAnswers:
    """Choose whom to ask about: all, or of those that say the same the one with the least id.

    Only answers to the same prompt are equal, and only where `besides` is, too.
    """
    if how == "each":
        return DistinctAnswers(candidates, {})
    found: dict[tuple[str, str, str | None], list[Candidate]] = {}
    for one in candidates:
        said = (one.prompt_id, " ".join(one.text.split()), besides(one))
        found.setdefault(said, []).append(one)
    alike = [sorted(group, key=lambda c: c.candidate_id) for group in found.values()]
    equal = {group[0].candidate_id: group[1:] for group in alike if len(group) > 1}
    return DistinctAnswers([group[0] for group in alike], equal)


def equal_params(how: EqualAnswers) -> Mapping[str, Json]:
    """Return what of it can change a judgement: nothing where each answer is asked about."""
    return {} if how == "each" else {"equal_answers": how}


def sharing_receipts(
    iteration: int,
    stage: str,
    how: EqualAnswers,
    asked: Sequence[SharedInquiry[S, T]],
    fates: Mapping[str, Sequence[str]],
) -> list[Receipt]:
    """Return receipts of a unit: for how many answers nothing had to be asked; `fates` of the rest.

    There is none where each answer is asked about.
    """
    if how == "each":
        return []
    shared = [c.candidate_id for one in asked for group in one.equal.values() for c in group]
    return receipts(iteration, stage, "candidates", {**fates, EQUAL: shared} if shared else fates)
