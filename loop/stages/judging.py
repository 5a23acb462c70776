"""Stages in which a judge answers questions about subjects, with retries of unreadable replies.

An unreadable reply never becomes a number. The judge gets the question again in the same stream,
under another derived seed and at another temperature, until `attempts` replies are used up. A
subject that is still unread is stored as unscored, with the reason and the raw reply.

`lpfloop resume --retry-unscored` asks again about such subjects (see `unscored`). A retried unit
keeps its readable rows and takes another key, which contains the number of replies that its
questions may have had. The stages made from it are discarded, and made again when the recipe
reaches them. So the result equals a run that allowed more replies from the start.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Self, TypeVar, cast

from ...configs.annotation import AnswerJudge
from ...configs.judging import PromptQuality
from ...configs.schema import CriticConfig, GradingConfig
from ...critics.guard import GUARDED, MARK_TOKENS, OBJECT_TOKENS, GuardKey
from ...critics.judge import Question, Reading
from ...critics.status import WAS_READ, Status
from ...policies.engines.engine import Completion, Request, Sampling
from ...stores.committer import Finished, if_there_is_room
from ...stores.frames import rows_frame
from ...stores.journal import AMENDED
from ...stores.journal_reader import Unit
from ...stores.keys import Json, digest
from ...stores.records import (
    Breakdown,
    Candidate,
    Claim,
    Critique,
    FilterCount,
    Grade,
    Preference,
    PromptReview,
    storable,
)
from ...stores.schemas import RowsByType
from ..data.filter_counts import KEPT, filter_counts
from ..run.budget import cost_of
from ..run.device_inventory import MAIN_THREAD, Places
from ..run.engine_client import EngineClient, engine_sampling
from ..run.handles import Planned
from ..run.models import Served
from ..run.reporter import UnitStats, served_by
from ..run.request_dispatcher import RequestDispatcher
from ..run.run import Run, Work
from ..run.stage import Stage, StageTime
from ..run.unread_replies import FEWEST, ReplyCount
from .unscored import KINDS

S = TypeVar("S")
T = TypeVar("T")
JudgeSettings = CriticConfig | GradingConfig | PromptQuality | AnswerJudge
Judgement = TypeVar("Judgement", Critique, Grade, Preference, PromptReview, Breakdown, Claim)
EqualAnswers = Literal["once", "each"]
Alike = tuple[Candidate, ...]
"""Equal answers to a prompt: the judge is shown the first, for all of them."""

IDS: Mapping[type[Any], str] = {
    Critique: "critique_id",
    Grade: "grade_id",
    Preference: "preference_id",
    Breakdown: "breakdown_id",
    Claim: "claim_id",
    PromptReview: "prompt_id",
}
"""The column that identifies the judgements of a stage."""
PENDING = ""
"""The status of a row until the judge is asked about it."""
RETRY_TEMPERATURE = 0.7
"""The temperature of a second and later reply."""
EQUAL = f"{KEPT}: equal to another"
"""The outcome of an answer that shares the judgement of another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replies:
    """How many replies each question of a unit may have (`most`) and had before (`had`).

    `rows` are the unit's existing rows, by id: readable ones are kept.
    """

    most: int
    had: int = 0
    rows: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def find_rows(self, drafts: Sequence[Judgement]) -> list[Judgement] | None:
        """Return the rows with the ids of these if all of them were read, else None."""
        known = (self.rows.get(getattr(draft, IDS[type(draft)])) for draft in drafts)
        rows = [row for row in known if row is not None and row.status in WAS_READ]
        return rows if len(rows) == len(drafts) else None


RepliesOf = Callable[[Unit], Replies]
"""How many replies the questions of a unit may have."""


class Posed(NamedTuple, Generic[T]):
    """A question as it is sent: by which name, and under which seed."""

    question: Question[T]
    request_id: str
    seed: int


@dataclass(frozen=True, kw_only=True)
class JudgeRequest(Generic[S, T, Judgement]):
    """A question to a judge about a subject, with the readings of its latest reply.

    `rows` are the subject's rows before the question. `pose` makes the question of an attempt, by
    its number. At most `most` replies are allowed; `attempts` is the number used so far.
    """

    subject: S
    rows: Sequence[Judgement]
    pose: Callable[[S, int], Posed[T]]
    most: int = 0
    readings: Sequence[Reading[T]] = ()
    text: str = ""
    attempts: int = 0

    @cached_property
    def posed(self) -> Posed[T]:
        """The question of the next attempt."""
        return self.pose(self.subject, self.attempts)

    @property
    def settled(self) -> bool:
        """Whether no further reply is requested; a failed request would fail again."""
        over = (*WAS_READ, Status.FAILED)
        is_over = bool(self.readings) and all(reading.status in over for reading in self.readings)
        return is_over or self.attempts >= self.most

    def request(self) -> Request:
        """Return the next request."""
        question, request_id, seed = self.posed
        return Request(
            request_id=request_id,
            messages=question.messages,
            seed=seed,
            example=question.example,
            schema=question.schema,
        )

    def after_answer(self, answer: Completion) -> Sequence[Self]:
        """Return it after a reply."""
        text = storable(answer.text)
        readings = self.posed.question.read(text, answer.finish_reason)
        return [replace(self, attempts=self.attempts + 1, text=text, readings=readings)]


@dataclass(frozen=True, kw_only=True)
class JudgedStage(ABC, Generic[S, T, Judgement]):
    """A stage in which a judge answers questions about the subjects of each chunk.

    A verb's subclass defines the subjects with their rows before the question, the question, and
    the contents of a row after it. `client` asks the judge, which may give `attempts` replies to
    each question; None if all rows are final before. `committed` is called with the chunk of each
    committed unit.
    """

    row_type: ClassVar[type[Any]]
    run: Run
    iteration: int
    client: EngineClient | None
    attempts: int
    committed: Callable[[int], None] = lambda _: None

    @cached_property
    def identity(self) -> Mapping[str, Json]:
        """Every input of a row except its subject and the number of replies."""
        return self._depends_on()

    @property
    def params(self) -> Mapping[str, Json]:
        """The parameters of the units' keys, without the rows that they read."""
        attempts = {} if self.client is None else {"attempts": self.attempts}
        return {**self.identity, **attempts}

    @property
    def judge(self) -> Served:
        """The judge's model."""
        if self.client is None:
            raise RuntimeError("this stage asks no judge")
        return self.client.served

    @property
    def where(self) -> Places:
        """The places in which the judge runs."""
        return MAIN_THREAD if self.client is None else self.run.places.of(self.judge)

    @abstractmethod
    def _depends_on(self) -> Mapping[str, Json]:
        """Return the contents of `identity`."""

    @abstractmethod
    def _subjects(self, chunk: int) -> Iterable[tuple[S, Sequence[Judgement]]]:
        """Return the subjects of a chunk, each with its rows before the question.

        Rows with another status than `PENDING` are final: the judge is not asked about them.
        """

    @abstractmethod
    def _pose(self, subject: S, attempt: int) -> Posed[T]:
        """Return the question about a subject in an attempt, counted from 0."""

    def _fill(self, row: Judgement, value: T, place: int) -> Judgement:
        """Return a row with the value that was read for it, at a place among the readings.

        The fields of the value are columns of the row, unless a subclass says which.
        """
        del place
        read = cast("Any", value)
        return replace(row, **{column.name: getattr(read, column.name) for column in fields(read)})

    def _places(self, request: JudgeRequest[S, T, Judgement]) -> Sequence[int]:
        """Return the place of each row's reading among those of a request."""
        return range(len(request.rows))

    def _filter_counts_of(
        self, requests: Sequence[JudgeRequest[S, T, Judgement]]
    ) -> Sequence[FilterCount]:
        """Return the filter counts of a unit."""
        del requests
        return ()

    def _requests(self, chunk: int, replies: Replies) -> Sequence[JudgeRequest[S, T, Judgement]]:
        """Return the questions to the judge about a chunk; those that need no reply are settled."""
        found = list[JudgeRequest[S, T, Judgement]]()
        for subject, rows in self._subjects(chunk):
            request = JudgeRequest(subject=subject, rows=rows, pose=self._pose)
            if rows[0].status == PENDING and not replies.find_rows(rows):
                request = replace(request, most=replies.most, attempts=replies.had)
            found.append(request)
        return found

    def _judgements(
        self, requests: Sequence[JudgeRequest[S, T, Judgement]], replies: Replies
    ) -> list[Judgement]:
        """Return the rows of a unit; rows that were read before are kept."""
        return [row for one in requests for row in replies.find_rows(one.rows) or self._judged(one)]

    def _judged(self, request: JudgeRequest[S, T, Judgement]) -> Sequence[Judgement]:
        """Return the rows of a subject after its last reply."""
        if not request.attempts:
            return request.rows
        places = self._places(request)
        readings = [request.readings[place] for place in places]
        return [
            replace(
                self._fill(row, reading.value, place),
                status=reading.status,
                attempts=request.attempts,
                text=request.text,
            )
            for row, reading, place in zip(request.rows, readings, places, strict=True)
        ]

    def guard(self, request: str) -> GuardKey:
        """Return the key by which a request to the judge is guarded, by its name."""
        return self.run.guard(request, self.judge)

    def plan(self, label: str, work: Work) -> Planned:
        """Plan and run the stage, and retry it if the user asked for that.

        Raises:
            Stopped: if a stop, or the end of a budget, came before the last judgement.
        """
        run, place = self.run, (self.iteration, label)
        replies = self._replies_so_far()
        planned = run.run_stage(
            *place,
            work,
            lambda stage: self.run_units(stage, replies),
            places=self.where,
            judge=True,
        )
        if place in run.retry:
            # Retried units take other keys, which later stages read, so other stages must be idle.
            run.flow.settle()
            run.retry.remove(place)
            self._retry(planned)
        return planned

    def run_units(self, stage: Stage, replies: RepliesOf) -> None:
        """Ask the judge for the pending rows of the stage.

        Raises:
            UnreadRepliesError: if too many of the replies cannot be read.
        """
        run, count = self.run, ReplyCount()

        def commit(
            unit: Unit, requests: Sequence[JudgeRequest[S, T, Judgement]], cost: UnitStats
        ) -> None:
            rows = self._judgements(requests, replies(unit))
            counts = self._filter_counts_of(requests)
            unread = sum(row.status not in WAS_READ for row in rows)
            tables: RowsByType = {
                self.row_type: rows,
                **({FilterCount: counts} if counts else {}),
            }
            stage.commit(unit, tables, replace(cost, rows=len(rows), unscored=unread))
            self.committed(unit.chunk)
            for one in requests:
                for reading in one.readings:
                    count.add(reading.status, one.text)
            count.require_read(run.config, run.store.folder, stage.planned.stage, fewest=FEWEST)

        if self.client is None:
            for unit in stage.units():
                commit(unit, self._requests(unit.chunk, replies(unit)), UnitStats())
            return
        RequestDispatcher(
            run,
            stage,
            client=self.client,
            work=lambda unit: self._requests(unit.chunk, replies(unit)),
            commit=commit,
        ).run_units()

    def _replies_so_far(self) -> RepliesOf:
        """Return how many replies a unit may have: `attempts`, or more if it was retried."""
        amended = cast("list[dict[str, Any]]", self.run.store.journal.events(AMENDED))
        counts = {str(event["unit"]): int(event["replies"]) for event in amended}
        return lambda unit: Replies(most=counts.get(unit.key, self.attempts))

    def _retry(self, planned: Planned) -> None:
        """Ask the judge again about what could not be read."""
        run, units = self.run, dict(self._unread_units(planned))
        where, shown = (planned.iteration, planned.stage), f"retry:{planned.stage}"

        def commit(unit: Unit, tables: RowsByType, done: UnitStats) -> None:
            before, replies = units[unit.key]
            unread = sum(row.status not in WAS_READ for row in replies.rows.values())
            cost = cost_of(done, judge=True)
            more = replace(done, rows=0, unscored=done.unscored - unread)
            spent = {**more.numbers, "judge_calls": cost.judge_calls, "judge_tokens": more.tokens}
            result = Finished(unit=unit.key, tables=tables, telemetry=spent, served=served_by(done))
            why = {"stage": planned.stage, "replies": replies.most}
            # Judgements downstream are made again, and may have as many replies.
            run.retry.update(run.store.amend(before.key, result, why).places)
            run.budget.settle(unit.key, cost)
            run.reporter.advance(planned.iteration, shown, done)

        pending = [Unit(key=key, chunk=before.chunk) for key, (before, _) in units.items()]
        stage = Stage(planned=planned, pending=pending, commit=commit, flow=run.flow)
        run.flow.admit()
        run.budget.require_time_and_room()
        run.reporter.begin(planned.iteration, shown, planned=len(pending), done=0)
        time_ = StageTime(run.wall_time)
        time_.begin()
        try:
            self.run_units(stage, lambda unit: units[unit.key][1])
        finally:
            seconds, _ = time_.end()
            if_there_is_room(lambda: run.store.journal.add_seconds(*where, seconds))
            run.reporter.end(planned.iteration, shown)
        run.stop.check()
        run.budget.check()

    def _unread_units(self, planned: Planned) -> Iterator[tuple[str, tuple[Unit, Replies]]]:
        """Yield units with unread rows, by their new keys, with the replies that may come."""
        store, kind = self.run.store, KINDS[planned.stage.partition(":")[0]]
        had = self._replies_so_far()
        for chunk, key in enumerate(planned.keys(store.journal)):
            rows, before = store.rows(self.row_type, key), Unit(key=key, chunk=chunk)
            if not rows_frame(self.row_type, rows).filter(kind.unread).is_empty():
                first = had(before).most
                by_id = {getattr(row, IDS[self.row_type]): row for row in rows}
                replies = Replies(most=first + self.attempts, had=first, rows=by_id)
                yield digest([key, "replies", replies.most]), (before, replies)


def judge_client(
    run: Run, judge: Served, settings: JudgeSettings, *, temperature: float | None = None
) -> EngineClient:
    """Return the client of a judge that is sampled by `settings`, or at another temperature."""
    first = with_room(run, judge, engine_sampling(settings.sampling, temperature=temperature))
    again = replace(first, temperature=RETRY_TEMPERATURE)
    return EngineClient(run=run, served=judge, first=first, again=again, judge=True)


def with_room(run: Run, judge: Served, sampling: Sampling) -> Sampling:
    """Return how a judge is sampled: with room for the mark, if there is one."""
    if not run.config.injection_guard:
        return sampling
    more = OBJECT_TOKENS if judge.by_schema else MARK_TOKENS
    return replace(sampling, max_tokens=sampling.max_tokens + more)


def guard_params(run: Run, judge: Served) -> Mapping[str, Json]:
    """Return the guard settings that can change a judge's reply: empty without a guard."""
    if not run.config.injection_guard:
        return {}
    return {"guard": GUARDED, **({"reply": "object"} if judge.by_schema else {})}


def judge_params(run: Run, judge: Served, settings: JudgeSettings) -> Mapping[str, Json]:
    """Return every setting that can change a judge's replies.

    The allowed number of replies is not included: it changes only rows that are still unread.
    """
    return {
        **guard_params(run, judge),
        "served": judge.params,
        "sampling": settings.sampling.model_dump(mode="json"),
        "retry_temperature": RETRY_TEMPERATURE,
    }


def group_equal(
    candidates: Sequence[Candidate],
    how: EqualAnswers,
    also_by: Callable[[Candidate], str | None] = lambda _: None,
) -> list[Alike]:
    """Return the answers in groups of equal ones, in each the smallest id first.

    Answers are equal if prompt, text (ignoring white space) and the caller's additional key are
    equal. If `how` is "each", every answer is a separate group.
    """
    if how == "each":
        return [(candidate,) for candidate in candidates]
    found = dict[tuple[str, str, str | None], list[Candidate]]()
    for one in candidates:
        content = (one.prompt_id, " ".join(one.text.split()), also_by(one))
        found.setdefault(content, []).append(one)
    return [tuple(sorted(group, key=lambda c: c.candidate_id)) for group in found.values()]


def equal_params(how: EqualAnswers) -> Mapping[str, Json]:
    """Return the setting if it can change a judgement: empty if `how` is "each"."""
    return {} if how == "each" else {"equal_answers": how}


def sharing_counts(
    iteration: int,
    stage: str,
    how: EqualAnswers,
    shared: Iterable[Alike],
    fates: Mapping[str, Sequence[str]],
) -> list[FilterCount]:
    """Return the counts of a unit: answers that share a judgement; `fates` of the others.

    The list is empty if `how` is "each".
    """
    if how == "each":
        return []
    equal = [candidate.candidate_id for group in shared for candidate in group[1:]]
    return filter_counts(
        iteration, stage, "candidates", {**fates, EQUAL: equal} if equal else fates
    )
