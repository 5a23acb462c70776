"""Which pairs an annotator gets, and what is decided about a pair without asking anybody.

The draws are seeded (`critics.annotators.simulate`): who is asked, in which order the two answers
are shown, and when a coin stands in for the annotator. Answers that differ in white space alone are
a tie.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...configs.annotation import AnnotationConfig
from ...critics.annotators.annotator_pool import Annotator
from ...critics.annotators.pair_verdicts import Choice
from ...critics.annotators.simulate import assign, coin, shown_swapped, without_asking
from ...critics.judge import Reading, Status
from ...stores.keys import Json, row_id
from ...stores.records import SCORED, Candidate, Order, Preference, Preferred
from ..run.panel import Panel


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Two answers to one prompt that are to be compared; `drawn_by` is what all draws depend on."""

    first: Candidate
    second: Candidate
    drawn_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A match with the id of its comparison: shown in `orders`, unless its `row` is known."""

    match: Match
    preference_id: str
    orders: tuple[Order, ...] = ()
    row: Preference | None = None


def normal(candidate: Candidate) -> str:
    """Return a text with its white space normalised: answers that differ in it alone are one."""
    return " ".join(candidate.text.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What comes to one annotator of a panel; `identity` is what its verdicts depend on."""

    panel: Panel
    annotator: Annotator
    config: AnnotationConfig
    seed: int
    iteration: int
    identity: Json

    def tasks(self, matches: Sequence[Match]) -> list[Task]:
        """Return the matches that the annotator was drawn for."""
        mine = (m for m in matches if self._assigned(m) is self.annotator)
        return [self._task(match) for match in mine]

    def row(
        self,
        task: Task,
        verdict: Reading[Choice],
        *,
        order: Order = "as_given",
        text: str = "",
        flipped: bool = False,
    ) -> Preference:
        """Return what is stored of a comparison."""
        first, second = task.match.first, task.match.second
        return Preference(
            preference_id=task.preference_id,
            prompt_id=first.prompt_id,
            iteration=self.iteration,
            first_id=first.candidate_id,
            second_id=second.candidate_id,
            annotator=self.annotator.name,
            preferred=verdict.value.preferred,
            flipped=flipped,
            order=order,
            text=text,
            status=verdict.status,
        )

    def _assigned(self, match: Match) -> Annotator:
        return assign(self.panel.pool, match.drawn_by, self.seed)

    def _task(self, match: Match) -> Task:
        ids = [match.first.candidate_id, match.second.candidate_id]
        task = Task(match=match, preference_id=row_id("pref", [*ids, self.identity]))
        known = self._known(task)
        return replace(task, orders=self._orders(match)) if known is None else known

    def _known(self, task: Task) -> Task | None:
        """Return the task with its row, if nobody is to be asked."""
        match = task.match
        if "failed" in (match.first.finish_reason, match.second.finish_reason):
            # Nothing was answered there, so that there is nothing to prefer.
            unanswered = Reading(Status.FAILED.value, Choice())
            return replace(task, row=self.row(task, unanswered))
        same = without_asking(normal(match.first), normal(match.second))
        if same is not None:
            return replace(task, row=self.row(task, _said(same)))
        tossed = coin(match.drawn_by, self.seed, self.panel.flip_probability)
        if tossed is not None:
            return replace(task, row=self.row(task, _said(tossed), flipped=True))
        return None

    def _orders(self, match: Match) -> tuple[Order, ...]:
        if self.config.order == "both":
            return ("as_given", "swapped")
        return ("swapped" if shown_swapped(match.drawn_by, self.seed) else "as_given",)


def _said(preferred: Preferred) -> Reading[Choice]:
    return Reading(SCORED, Choice(preferred))
