"""Asking one annotator which of two answers is better, several pairs in a prompt.

A pair whose verdict cannot be read is asked about again under a new derived seed, without those
that were read beside it. It is never guessed: after the last reply it is stored unscored, with the
reason and the raw reply.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

from ...critics.annotators.annotator_pool import Annotator
from ...critics.annotators.comparison import Comparison, ask
from ...critics.annotators.pair_verdicts import Choice
from ...critics.annotators.simulate import assign, reconciled
from ...critics.judge import Reading
from ...policies.engines.engine import Completion, Sampling
from ...stores.journal_reader import Unit
from ...stores.keys import Json, derive_seed, row_id
from ...stores.records import Order, Preference
from ..run.lines import EngineLine
from ..run.models import Served
from ..run.panel import Panel
from ..run.run import Run, Stage, Verb
from .ask_judge import Asked, Posed, ask_judge
from .matches import Match, decided, orders_of

RETRY_TEMPERATURE = 0.7
"""At temperature 0 an annotator would only repeat what could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A match with the id of its comparison: shown in `orders`, unless its `row` is known."""

    match: Match
    preference_id: str
    orders: tuple[Order, ...] = ()
    row: Preference | None = None


class Shown(NamedTuple):
    """A comparison as it is shown in one order."""

    preference_id: str
    order: Order
    match: Match


class AskedPairs(Asked[tuple[Shown, ...], Choice]):
    """Comparisons that one prompt asks about."""

    def heard(self, answer: Completion) -> Sequence[Self]:
        """Return each by itself: asked again, none keeps others from being read."""
        (whole,) = super().heard(answer)
        return [
            replace(whole, subject=(shown,), readings=(reading,))
            for shown, reading in zip(self.subject, whole.readings, strict=True)
        ]


@dataclass(frozen=True, kw_only=True)
class Annotating:
    """A stage of preferences: those of the matches that one annotator of a panel gets.

    `retrying` says that the replies come after others that could not be read.
    """

    run: Run
    iteration: int
    verb: Verb
    panel: Panel
    annotator: Annotator
    retrying: bool = False

    @cached_property
    def identity(self) -> Json:
        """What a preference depends on besides the two answers and the number of replies."""
        config = self.run.config.annotation
        return {
            "verb": self.verb.name,
            "annotator": self.annotator.digest,
            "pool": [annotator.name for annotator in self.panel.pool.annotators],
            "served": self._served.params,
            "flip_probability": self.panel.flip_probability,
            "keyed_on": config.keyed_on,
            "order": config.order,
        }

    def tasks(self, matches: Sequence[Match]) -> list[Task]:
        """Return the matches that the annotator was drawn for."""
        pool, seed = self.panel.pool, self.run.config.seed
        return [self._task(m) for m in matches if assign(pool, m.drawn_by, seed) is self.annotator]

    def pay(
        self,
        stage: Stage,
        work: Callable[[Unit], Sequence[Task]],
        replies: Callable[[Unit], range],
    ) -> None:
        """Compare what the stage owes.

        `work` gives a unit's tasks when its turn has come, `replies` the numbers of the replies
        that may be asked for.
        """
        size = 1 if self.retrying else self.annotator.batch_size
        hand = dict[str, Sequence[Task]]()

        def asked(unit: Unit) -> list[AskedPairs]:
            hand[unit.key] = tasks = work(unit)
            return self._asked(tasks, replies(unit), size)

        def rows(unit: Unit, settled: Sequence[AskedPairs]) -> list[Preference]:
            said = dict[tuple[str, Order], AskedPairs]()
            for one in settled:
                said |= {(shown.preference_id, shown.order): one for shown in one.subject}
            return [task.row or self._row(task, said) for task in hand.pop(unit.key)]

        # Asked again, each match of a prompt may need a reply of its own.
        times = 1 + (self.run.config.annotation.attempts - 1) * size
        ask_judge(self._line, stage, Preference, times=times, work=asked, rows=rows)

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
        first = again if self.retrying else replace(again, temperature=self.annotator.temperature)
        return EngineLine(run=self.run, served=self._served, first=first, again=again, judge=True)

    def _task(self, match: Match) -> Task:
        ids = [match.first.candidate_id, match.second.candidate_id]
        task = Task(match=match, preference_id=row_id("pref", [*ids, self.identity]))
        seed, config = self.run.config.seed, self.run.config.annotation
        known = decided(match, seed, self.panel.flip_probability)
        if known is None:
            return replace(task, orders=orders_of(match, seed, config))
        row = self._preference(task, known.reading, order="as_given", flipped=known.flipped)
        return replace(task, row=row)

    def _asked(self, tasks: Sequence[Task], replies: range, size: int) -> list[AskedPairs]:
        """Ask about what is shown first, and what is shown once more, some matches a prompt."""
        showings = [
            [Shown(t.preference_id, t.orders[n], t.match) for t in tasks if n < len(t.orders)]
            for n in range(2)
        ]
        return [
            AskedPairs(subject=tuple(shown[at : at + size]), pose=self._pose, replies=replies)
            for shown in showings
            for at in range(0, len(shown), size)
        ]

    def _pose(self, shown: tuple[Shown, ...], number: int) -> Posed[Choice]:
        about = [[one.preference_id for one in shown], [one.order for one in shown]]
        return Posed(
            ask(self.annotator, [self._comparison(one) for one in shown]),
            row_id("ask", about),
            derive_seed(self.run.config.seed, "annotate", about, number),
        )

    def _comparison(self, shown: Shown) -> Comparison:
        first, second = shown.match.first, shown.match.second
        return Comparison(
            prompt=self.run.prompts[first.prompt_id].instruction,
            first=first.text,
            second=second.text,
            key=shown.preference_id,
            order=shown.order,
        )

    def _row(self, task: Task, said: Mapping[tuple[str, Order], AskedPairs]) -> Preference:
        """Return what is stored of a comparison that was asked about."""
        asked = [said[task.preference_id, order] for order in task.orders]
        readings = [reading for one in asked for reading in one.readings]
        if len(asked) == 1:
            return self._preference(task, readings[0], order=task.orders[0], text=asked[0].text)
        text = "\n\n".join(one.text for one in asked)
        return self._preference(task, reconciled(*readings), order="both", text=text)

    def _preference(
        self,
        task: Task,
        reading: Reading[Choice],
        *,
        order: Order,
        text: str = "",
        flipped: bool = False,
    ) -> Preference:
        first, second = task.match.first, task.match.second
        return Preference(
            preference_id=task.preference_id,
            prompt_id=first.prompt_id,
            iteration=self.iteration,
            first_id=first.candidate_id,
            second_id=second.candidate_id,
            annotator=self.annotator.name,
            preferred=reading.value.preferred,
            flipped=flipped,
            order=order,
            text=text,
            status=reading.status,
        )
