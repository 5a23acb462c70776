"""Asking one annotator which of two answers is better, several pairs in a prompt.

A pair whose verdict cannot be read is asked about again under a new derived seed, without those
that were read beside it. It is never guessed: after the last reply it is stored unscored, with the
reason and the raw reply.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

from ...configs.annotation import Keying, Ordering
from ...critics.annotators.annotator_pool import AnyAnnotator
from ...critics.annotators.ask_annotator import ask_annotator
from ...critics.annotators.comparison import Comparison
from ...critics.annotators.pair_verdicts import PairChoice
from ...critics.annotators.simulate import assign, reconciled
from ...critics.status import Status
from ...policies.engines.engine import Completion, Sampling
from ...stores.journal_reader import Unit
from ...stores.keys import Json, derive_seed, row_id
from ...stores.records import SCORED, Order, Preference
from ..data.prompt_rows import parted_input
from ..run.lines import EngineLine
from ..run.models import Served
from ..run.panel import Panel
from ..run.run import Run, Verb
from ..run.stage import Stage
from ..run.stage_places import Places
from .ask_judge import (
    JudgeInquiry,
    Posed,
    Replies,
    RepliesOf,
    ask_judge,
    guard_params,
    with_room,
)
from .matches import Decided, Match, decided, orders_of

RETRY_TEMPERATURE = 0.7
"""At temperature 0 an annotator would only repeat what could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A match with the row that is stored of it, unless it is still to be shown in `orders`."""

    match: Match
    row: Preference
    orders: tuple[Order, ...] = ()


class PairInquiry(JudgeInquiry[tuple[Comparison, ...], PairChoice]):
    """Comparisons that one prompt asks about."""

    def heard(self, answer: Completion) -> Sequence[Self]:
        """Return each by itself: asked again, none keeps others from being read."""
        (whole,) = super().heard(answer)
        return [
            replace(whole, subject=(comparison,), readings=(reading,))
            for comparison, reading in zip(self.subject, whole.readings, strict=True)
        ]


@dataclass(frozen=True, kw_only=True)
class Annotating:
    """A stage of preferences: those of the matches that one annotator of a panel gets.

    `matched` gives the matches of a chunk of prompts, `order` says how their answers are shown, and
    `keyed_on` what they were drawn by.
    """

    run: Run
    iteration: int
    verb: Verb
    panel: Panel
    annotator: AnyAnnotator
    matched: Callable[[int], Sequence[Match]]
    order: Ordering
    keyed_on: Keying

    @property
    def attempts(self) -> int:
        """How many replies to a question are asked for at once."""
        return self.run.config.annotation.attempts

    @cached_property
    def identity(self) -> Json:
        """What a preference depends on besides the two answers and the number of replies."""
        return {
            "verb": self.verb.name,
            "annotator": self.annotator.digest,
            "pool": [annotator.name for annotator in self.panel.pool.annotators],
            "served": self._served.params,
            "flip_probability": self.panel.flip_probability,
            "keyed_on": self.keyed_on,
            "order": self.order,
            **({"input": "apart"} if self._shows_inputs else {}),
            **guard_params(self.run, self._served),
        }

    @property
    def where(self) -> Places:
        """Where the judge is asked."""
        return self.run.places.of(self._served)

    def pay(self, stage: Stage, replies: RepliesOf[Preference]) -> None:
        """Compare what the stage owes."""
        hand = dict[str, Sequence[Task]]()

        def asked(unit: Unit) -> list[PairInquiry]:
            hand[unit.key] = tasks = self._tasks(unit, replies(unit))
            return self._asked(tasks, replies(unit))

        def rows(unit: Unit, settled: Sequence[PairInquiry]) -> list[Preference]:
            said = {(pair.key, pair.order): one for one in settled for pair in one.subject}
            return [_heard(task, said) for task in hand.pop(unit.key)]

        ask_judge(self._line, stage, Preference, work=asked, rows=rows)

    @property
    def _served(self) -> Served:
        return self.run.models.annotators[self.annotator.role]

    @property
    def _line(self) -> EngineLine:
        again = Sampling(
            temperature=max(self.annotator.temperature, RETRY_TEMPERATURE),
            top_p=self.annotator.top_p,
            max_tokens=self.annotator.max_tokens,
            logit_bias=self.annotator.logit_bias,
        )
        again = again if self.annotator.short else with_room(self.run, self._served, again)
        first = replace(again, temperature=self.annotator.temperature)
        return EngineLine(run=self.run, served=self._served, first=first, again=again, judge=True)

    def _tasks(self, unit: Unit, replies: Replies[Preference]) -> list[Task]:
        """Return the matches that the annotator was drawn for."""
        pool, seed, kept = self.panel.pool, self.run.config.seed, replies.rows
        drawn = (
            m for m in self.matched(unit.chunk) if assign(pool, m.drawn_by, seed) is self.annotator
        )
        return [self._task(match, kept) for match in drawn]

    def _task(self, match: Match, kept: Mapping[str, Preference]) -> Task:
        seed = self.run.config.seed
        first, second = match.first.candidate_id, match.second.candidate_id
        known = decided(match, seed, self.panel.flip_probability)
        said = known or Decided(None, Status.FAILED)
        row = Preference(
            preference_id=row_id("pref", [first, second, self.identity]),
            prompt_id=match.first.prompt_id,
            iteration=self.iteration,
            first_id=first,
            second_id=second,
            annotator=self.annotator.name,
            preferred=said.preferred,
            flipped=said.flipped,
            order="as_given",
            text="",
            status=said.status.value,
        )
        row = kept.get(row.preference_id, row)
        done = known is not None or row.status == SCORED
        return Task(match=match, row=row, orders=() if done else orders_of(match, seed, self.order))

    def _asked(self, tasks: Sequence[Task], replies: Replies[Preference]) -> list[PairInquiry]:
        """Ask about what is shown first, and what is shown once more, some pairs a prompt.

        Asked again, each pair stands alone.
        """
        size = 1 if replies.had else self.annotator.batch_size
        showings = [
            alike
            for n in range(2)
            for alike in _by_input(
                [self._comparison(task, task.orders[n]) for task in tasks if n < len(task.orders)]
            )
        ]
        return [
            PairInquiry(
                subject=tuple(shown[at : at + size]),
                pose=self._pose,
                most=replies.most,
                attempts=replies.had,
            )
            for shown in showings
            for at in range(0, len(shown), size)
        ]

    def _pose(self, pairs: tuple[Comparison, ...], number: int) -> Posed[PairChoice]:
        about = [[pair.key for pair in pairs], [pair.order for pair in pairs]]
        seed = derive_seed(self.run.config.seed, "annotate", about, number)
        name = row_id("ask", about)
        question = ask_annotator(self.annotator, pairs, self.run.guard(name, self._served))
        return Posed(question, name, seed)

    def _comparison(self, task: Task, order: Order) -> Comparison:
        first, second = task.match.first, task.match.second
        asked = self.run.prompts[first.prompt_id].instruction
        instruction, given = asked, None
        if self._shows_inputs:
            instruction, given = parted_input(asked)
        return Comparison(
            prompt=instruction,
            first=first.text,
            second=second.text,
            key=task.row.preference_id,
            order=order,
            input=given,
        )

    @property
    def _shows_inputs(self) -> bool:
        """Whether prompts keep apart what an instruction is about."""
        return self.run.config.prompts.input == "headed"


def _by_input(comparisons: Sequence[Comparison]) -> Iterator[list[Comparison]]:
    """Give the pairs without an input, then those with one: each kind has a form of prompt."""
    for with_input in (False, True):
        yield [one for one in comparisons if bool(one.input) == with_input]


def _heard(task: Task, said: Mapping[tuple[str, str], PairInquiry]) -> Preference:
    """Return what is stored of a comparison when nothing of it is to be asked any more."""
    if not task.orders:
        return task.row
    asked = [said[task.row.preference_id, order] for order in task.orders]
    both = len(asked) > 1
    readings = [reading for one in asked for reading in one.readings]
    reading = reconciled(*readings) if both else readings[0]
    return replace(
        task.row,
        preferred=reading.value.preferred,
        order="both" if both else task.orders[0],
        text="\n\n".join(one.text for one in asked),
        status=reading.status,
    )
