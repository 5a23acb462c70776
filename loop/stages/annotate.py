"""Asking one annotator which of two answers is better, several pairs in a prompt.

A pair whose verdict can not be read is asked about again under a new derived seed, without those
that were read beside it. It is never guessed: after the last reply it is stored unscored, with the
reason and the raw reply.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from ...critics.annotators.annotator_pool import Annotator
from ...critics.annotators.comparison import Comparison, Question, ask
from ...critics.annotators.comparison_reply import Verdict, read
from ...critics.annotators.simulate import reconciled
from ...policies.engines.engine import Batch, Completion, Request, Sampling
from ...stores.journal_reader import Cost, Unit
from ...stores.keys import Json, derive_seed, row_id
from ...stores.records import SCORED, Order, Preference, storable
from ..run.admission import Admission
from ..run.budget import upper_bound
from ..run.models import Served
from ..run.panel import Panel
from ..run.reporter import Advance
from ..run.run import Run, Stage
from .draw_candidates import record_failures, spent
from .matches import Desk, Task

RETRY_TEMPERATURE = 0.7
"""At temperature 0 an annotator would only repeat what could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Heard:
    """The latest reply about a match in one order, and what it says of it."""

    text: str
    verdict: Verdict


@dataclass(kw_only=True)
class _InHand:
    """A unit that is being asked about; `replies` numbers the replies that may be asked for."""

    unit: Unit
    tasks: Sequence[Task]
    replies: range
    heard: dict[tuple[str, Order], _Heard] = field(default_factory=dict[tuple[str, Order], _Heard])
    posed: Sequence[Question] = ()
    rounds: int = 0
    cost: Advance = field(default_factory=Advance)

    def unread(self) -> list[list[tuple[Task, Order]]]:
        """Return what is still to be asked: what is shown first, and what is shown once more."""
        return [
            [(t, t.orders[showing]) for t in self.tasks if self._lacks(t, showing)]
            for showing in range(max((len(task.orders) for task in self.tasks), default=0))
        ]

    @property
    def finished(self) -> bool:
        """Whether nothing is still to be asked, or nothing more may be."""
        return self.rounds == len(self.replies) or not any(self.unread())

    def _lacks(self, task: Task, showing: int) -> bool:
        if showing >= len(task.orders):
            return False
        said = self.heard.get((task.preference_id, task.orders[showing]))
        return said is None or said.verdict.status != SCORED


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotating:
    """A stage of preferences: those of the matches that one annotator of a panel gets.

    `retrying` says that the replies come after others that could not be read.
    """

    run: Run
    iteration: int
    verb: str
    panel: Panel
    annotator: Annotator
    retrying: bool = False

    @property
    def identity(self) -> Json:
        """What a preference depends on besides the two answers and the number of replies."""
        config = self.run.config.annotation
        return {
            "verb": self.verb,
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
        if not stage.owed:
            return
        for done in self._asked(stage, work, replies):
            self._commit(stage, done)

    @property
    def _served(self) -> Served:
        return self.run.models.annotators[self.annotator.role]

    def _asked(
        self,
        stage: Stage,
        work: Callable[[Unit], Sequence[Task]],
        replies: Callable[[Unit], range],
    ) -> Iterator[_InHand]:
        """Ask about every unit; give each as soon as nothing of it is to be asked again."""
        hand: dict[str, _InHand] = {}
        for number in count():
            batches = (
                self._again(hand, number) if number else self._first(stage, work, replies, hand)
            )
            for result in self.run.engine(self._served).generate(batches):
                taken = hand[result.key]
                self._hear(taken, result.completions)
                record_failures(self.run, result.completions)
                if taken.finished:
                    yield hand.pop(result.key)
                else:
                    self.run.budget.park(result.key)
            # What was prepared and then not admitted was never asked: its turn comes another time.
            if self.run.stop.requested or all(t.rounds <= number for t in hand.values()):
                return

    def _first(
        self,
        stage: Stage,
        work: Callable[[Unit], Sequence[Task]],
        replies: Callable[[Unit], range],
        hand: dict[str, _InHand],
    ) -> Admission[Batch]:
        """Ask about a unit at a time: only what is in flight, or is unread, is held in memory."""

        def prepare(unit: Unit) -> Batch | None:
            taken = _InHand(unit=unit, tasks=work(unit), replies=replies(unit))
            if taken.finished:
                self._commit(stage, taken)
                return None
            hand[unit.key] = taken
            return self._batch(taken)

        def cost(batch: Batch) -> Cost:
            replies = hand[batch.key].replies
            # Asked again, each pair of a prompt may need one of its own.
            pairs = self.annotator.batch_size if replies[0] == 0 else 1
            return upper_bound(
                self.run.config.prices,
                batch.requests,
                self.annotator.max_tokens,
                judge=True,
                times=1 + (len(replies) - 1) * pairs,
            )

        return self.run.admission(stage, prepare, cost)

    def _again(self, hand: Mapping[str, _InHand], number: int) -> Iterator[Batch]:
        """Ask again what has no verdict yet: admitted, and paid for, with the first reply."""
        for taken in list(hand.values()):
            if self.run.stop.requested:
                return
            if taken.rounds == number:
                yield self._batch(taken)

    def _batch(self, taken: _InHand) -> Batch:
        """Pose what is unread, some pairs a prompt; each question and reply has its own seed.

        What could not be read is posed alone: no pair keeps others from being read twice.
        """
        number = taken.replies[taken.rounds]
        size = self.annotator.batch_size if number == 0 else 1
        taken.posed = [
            ask(self.annotator, [self._comparison(*one) for one in shown[i : i + size]])
            for shown in taken.unread()
            for i in range(0, len(shown), size)
        ]
        return Batch(
            key=taken.unit.key,
            requests=tuple(self._request(q, number) for q in taken.posed),
            sampling=self._sampling(warm=taken.rounds > 0),
        )

    def _comparison(self, task: Task, order: Order) -> Comparison:
        first, second = task.match.first, task.match.second
        return Comparison(
            prompt=self.run.prompts[first.prompt_id].instruction,
            first=first.text,
            second=second.text,
            key=task.preference_id,
            order=order,
        )

    def _request(self, question: Question, number: int) -> Request:
        about = [list(question.expected.keys), list(question.expected.orders)]
        return Request(
            request_id=row_id("ask", about),
            messages=question.messages,
            seed=derive_seed(self.run.config.seed, "annotate", about, number),
        )

    def _sampling(self, *, warm: bool) -> Sampling:
        least = RETRY_TEMPERATURE if warm or self.retrying else 0.0
        return Sampling(
            temperature=max(self.annotator.temperature, least),
            top_p=self.annotator.top_p,
            max_tokens=self.annotator.max_tokens,
            logit_bias=self.annotator.logit_bias,
        )

    def _hear(self, taken: _InHand, replies: Sequence[Completion]) -> None:
        for question, reply in zip(taken.posed, replies, strict=True):
            text = storable(reply.text)
            verdicts = read(question, text, reply.finish_reason)
            for verdict, order in zip(verdicts, question.expected.orders, strict=True):
                taken.heard[verdict.key, order] = _Heard(text=text, verdict=verdict)
        cost = spent(replies, rows=0)
        again = self.retrying or taken.rounds > 0
        taken.cost += replace(cost, retries=cost.calls if again else 0)
        taken.rounds += 1

    def _commit(self, stage: Stage, done: _InHand) -> None:
        rows = [task.row or self._row(task, done) for task in done.tasks]
        unread = sum(row.status != SCORED for row in rows)
        cost = replace(done.cost, rows=len(rows), unscored=unread)
        stage.commit(done.unit, {Preference: rows}, cost)

    def _row(self, task: Task, done: _InHand) -> Preference:
        said = [done.heard[task.preference_id, order] for order in task.orders]
        if len(said) == 1:
            return self.desk.row(task, said[0].verdict, order=task.orders[0], text=said[0].text)
        verdict = reconciled(said[0].verdict, said[1].verdict)
        return self.desk.row(task, verdict, order="both", text="\n\n".join(s.text for s in said))
