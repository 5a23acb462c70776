"""Asking one annotator which of two answers is better, several pairs in a prompt.

A pair whose verdict can not be read is asked about again under a new derived seed, without those
that were read beside it. It is never guessed: after the last reply it is stored unscored, with the
reason and the raw reply.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...critics.annotators.annotator_pool import Annotator
from ...critics.annotators.comparison import Comparison, ask
from ...critics.annotators.pair_verdicts import Choice
from ...critics.annotators.simulate import reconciled
from ...critics.judge import Question, Reading
from ...policies.engines.engine import Completion, Request, Sampling
from ...stores.journal_reader import Unit
from ...stores.keys import Json, derive_seed, row_id
from ...stores.records import SCORED, Order, Preference, storable
from ..run.lines import EngineLine
from ..run.models import Served
from ..run.panel import Panel
from ..run.pump import Pump
from ..run.reporter import Advance
from ..run.run import Run, Stage, Verb
from .matches import Desk, Task

RETRY_TEMPERATURE = 0.7
"""At temperature 0 an annotator would only repeat what could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """A match as it is shown in one order, and the latest reply about it, if there was one."""

    task: Task
    order: Order
    text: str = ""
    verdict: Reading[Choice] | None = None

    @property
    def place(self) -> tuple[str, Order]:
        """What tells it from every other one of its unit."""
        return self.task.preference_id, self.order

    @property
    def read(self) -> bool:
        """Whether the reply could be read."""
        return self.verdict is not None and self.verdict.status == SCORED


@dataclass(frozen=True, slots=True, kw_only=True)
class _Posed:
    """Matches that one prompt asks about; `replies` numbers those that may be asked for."""

    annotating: "Annotating"
    shown: tuple[_Shown, ...]
    replies: range
    attempts: int = 0

    @property
    def settled(self) -> bool:
        """Whether all was read, or no more replies may be asked for."""
        return self.attempts >= len(self.replies) or all(one.read for one in self.shown)

    @property
    def question(self) -> Question[Choice]:
        """What is asked."""
        return ask(self.annotating.annotator, [self.annotating.comparison(s) for s in self.shown])

    def request(self) -> Request:
        """Return the next request; each question and reply has its own seed."""
        about = [[one.task.preference_id for one in self.shown], [one.order for one in self.shown]]
        return Request(
            request_id=row_id("ask", about),
            messages=self.question.messages,
            seed=self.annotating.seed(about, self.replies[self.attempts]),
        )

    def heard(self, answer: Completion) -> "Sequence[_Posed]":
        """Return each match with its verdict: alone, so that none keeps others from being read."""
        text = storable(answer.text)
        verdicts = self.question.read(text, answer.finish_reason)
        return [
            replace(self, attempts=self.attempts + 1, shown=(replace(one, text=text, verdict=v),))
            for one, v in zip(self.shown, verdicts, strict=True)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
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

    @property
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

    @property
    def desk(self) -> Desk:
        """What comes to the annotator."""
        return Desk(
            panel=self.panel,
            annotator=self.annotator,
            config=self.run.config.annotation,
            seed=self.run.config.seed,
            iteration=self.iteration,
            identity=self.identity,
        )

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
        # Asked again, each match of a prompt may need a reply of its own.
        again = 1 if self.retrying else self.annotator.batch_size
        hand = dict[str, Sequence[Task]]()

        def posed(unit: Unit) -> list[_Posed]:
            hand[unit.key] = tasks = work(unit)
            return self._posed(tasks, replies(unit))

        def commit(unit: Unit, settled: Sequence[_Posed], cost: Advance) -> None:
            said = {one.place: one for posed in settled for one in posed.shown}
            rows = [task.row or self._row(task, said) for task in hand.pop(unit.key)]
            unread = sum(row.status != SCORED for row in rows)
            stage.commit(unit, {Preference: rows}, replace(cost, rows=len(rows), unscored=unread))

        attempts = self.run.config.annotation.attempts
        line = EngineLine(
            run=self.run,
            served=self._served,
            first=self._sampling(warm=False),
            again=self._sampling(warm=True),
            judge=True,
        )
        times = 1 + (attempts - 1) * again
        Pump(run=self.run, line=line, work=posed, commit=commit, times=times).pay(stage)

    @property
    def _served(self) -> Served:
        return self.run.models.annotators[self.annotator.role]

    def _posed(self, tasks: Sequence[Task], replies: range) -> list[_Posed]:
        """Pose what is shown first, and what is shown once more, some matches a prompt."""
        size = 1 if self.retrying else self.annotator.batch_size
        showings = range(max((len(task.orders) for task in tasks), default=0))
        return [
            _Posed(annotating=self, shown=tuple(shown[start : start + size]), replies=replies)
            for showing in showings
            for shown in [
                [_Shown(task=t, order=t.orders[showing]) for t in tasks if showing < len(t.orders)]
            ]
            for start in range(0, len(shown), size)
        ]

    def comparison(self, shown: _Shown) -> Comparison:
        """Return what an annotator is shown of a match."""
        first, second = shown.task.match.first, shown.task.match.second
        return Comparison(
            prompt=self.run.prompts[first.prompt_id].instruction,
            first=first.text,
            second=second.text,
            key=shown.task.preference_id,
            order=shown.order,
        )

    def seed(self, about: Json, number: int) -> int:
        """Return the seed of a reply, by its number."""
        return derive_seed(self.run.config.seed, "annotate", about, number)

    def _sampling(self, *, warm: bool) -> Sampling:
        least = RETRY_TEMPERATURE if warm or self.retrying else 0.0
        return Sampling(
            temperature=max(self.annotator.temperature, least),
            top_p=self.annotator.top_p,
            max_tokens=self.annotator.max_tokens,
            logit_bias=self.annotator.logit_bias,
        )

    def _row(self, task: Task, said: Mapping[tuple[str, Order], _Shown]) -> Preference:
        replies = [said[task.preference_id, order] for order in task.orders]
        verdicts = [reply.verdict for reply in replies if reply.verdict is not None]
        if len(replies) == 1:
            return self.desk.row(task, verdicts[0], order=task.orders[0], text=replies[0].text)
        text = "\n\n".join(reply.text for reply in replies)
        return self.desk.row(task, reconciled(verdicts[0], verdicts[1]), order="both", text=text)
