"""What a grader is asked in one request: about all completions of a prompt, or about one."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...critics.grading.grade_reply import Appraisal
from ...critics.grading.grader import Grader
from ...critics.judge import Question, Reading, Status
from ...policies.engines.engine import Completion, Request
from ...stores.keys import Json, derive_seed, row_id
from ...stores.records import Candidate, GradedAspect, Prompt, storable
from ..data.principles import Principle

READ = frozenset({Status.SCORED.value, Status.NOT_APPLICABLE.value})
"""The statuses of what was read, with a rating or without."""
NOWHERE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class GradingInquiry:
    """Candidates graded together in one aspect, with what the latest reply says of each.

    Every attempt shows them in another random order, drawn for these candidates alone. `verdicts`
    stand in the order of `candidates`; they are empty before the first reply, unless there is
    nothing to ask.
    """

    grader: Grader
    seed: int
    aspect: GradedAspect
    prompt: Prompt
    candidates: tuple[Candidate, ...]
    most: int
    verdicts: tuple[Reading[Appraisal], ...] = ()
    attempts: int = 0
    text: str = ""

    @property
    def about(self) -> Json:
        """The aspect, and the candidates by their ids, however they are stored."""
        return [self.aspect, sorted(c.candidate_id for c in self.candidates)]

    @property
    def settled(self) -> bool:
        """Whether all was read, or there is nothing to ask any more."""
        if not self.verdicts:
            return False
        if self.attempts >= self.most:
            return True
        return not self.attempts or all(v.status in READ for v in self.verdicts)

    @property
    def places(self) -> tuple[int, ...]:
        """The place, from 0, of each candidate in the latest question; -1 if it was not shown."""
        if not self.attempts:
            return (NOWHERE,) * len(self.candidates)
        return self._places(self.attempts - 1)

    def request(self) -> Request:
        """Return the next request; each attempt has its own seed and order."""
        return Request(
            request_id=row_id("ask", self.about),
            messages=self._question(self.attempts).messages,
            seed=derive_seed(self.seed, "grade", self.about, self.attempts),
        )

    def heard(self, answer: Completion) -> "Sequence[GradingInquiry]":
        """Return the inquiry after a reply: a verdict on each candidate, whatever its place."""
        text = storable(answer.text)
        shown = self._question(self.attempts).read(text, answer.finish_reason)
        verdicts = tuple(shown[place] for place in self._places(self.attempts))
        return [replace(self, attempts=self.attempts + 1, text=text, verdicts=verdicts)]

    def _places(self, attempt: int) -> tuple[int, ...]:
        ids = sorted(c.candidate_id for c in self.candidates)
        seed = derive_seed(self.seed, "grading order", self.about, attempt)
        random.Random(seed).shuffle(ids)
        return tuple(ids.index(c.candidate_id) for c in self.candidates)

    def _question(self, attempt: int) -> Question[Appraisal]:
        if self.aspect == "overall":
            (candidate,) = self.candidates
            told = candidate.principle and Principle.read(candidate.principle).text
            return self.grader.ask(self.aspect, self.prompt, [candidate.text], told)
        shown = zip(self._places(attempt), self.candidates, strict=True)
        texts = [c.text for _, c in sorted(shown, key=lambda pair: pair[0])]
        return self.grader.ask(self.aspect, self.prompt, texts)


def grouped(candidates: Sequence[Candidate]) -> list[tuple[Candidate, ...]]:
    """Return the candidates of each prompt, in the order in which prompts first appear."""
    groups: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        groups.setdefault(candidate.prompt_id, []).append(candidate)
    return [tuple(group) for group in groups.values()]
