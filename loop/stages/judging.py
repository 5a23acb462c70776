"""Stages in which a judge answers questions about subjects, with retries of unreadable replies.

An unreadable reply never becomes a number. The judge gets the question again in the same stream,
under another derived seed and at another temperature, until `attempts` replies are used up. A
subject that is still unread is stored as unscored, with the reason and the raw reply.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Self, TypeVar

from ...configs.annotation import AnswerJudge
from ...configs.filters import PromptQuality
from ...configs.schema import CriticConfig, GradingConfig
from ...critics.guard import GUARDED, MARK_TOKENS, OBJECT_TOKENS, GuardKey
from ...critics.judge import Question, Reading
from ...critics.status import WAS_READ, Status
from ...policies.engines.engine import Completion, Request, Sampling
from ...stores.journal_reader import Unit
from ...stores.keys import Json
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
from ..data.filter_counts import KEPT, filter_counts
from ..run.device_placement import Places
from ..run.engine_client import EngineClient, engine_sampling
from ..run.models import Served
from ..run.reporter import UnitStats
from ..run.request_dispatcher import RequestDispatcher
from ..run.run import Run
from ..run.stage import Stage
from ..run.unread_replies import FEWEST, ReplyCount

S = TypeVar("S")
T = TypeVar("T")
JudgeSettings = CriticConfig | GradingConfig | PromptQuality | AnswerJudge
Judgement = TypeVar("Judgement", Critique, Grade, Preference, PromptReview, Breakdown, Claim)
AnyJudgement = Critique | Grade | Preference | PromptReview | Breakdown | Claim
EqualAnswers = Literal["once", "each"]
Alike = tuple[Candidate, ...]
"""Equal answers to a prompt: the judge is shown the first, for all of them."""

RETRY_TEMPERATURE = 0.7
"""The temperature of a second and later reply."""
EQUAL = f"{KEPT}: equal to another"
"""The outcome of an answer that shares the judgement of another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replies(Generic[Judgement]):
    """How many replies each question of a unit may have (`most`) and had before (`had`).

    `rows` are the unit's existing rows, by id: readable ones are kept.
    """

    most: int
    had: int = 0
    rows: Mapping[str, Judgement] = field(default_factory=dict[str, Judgement])

    def find_rows(self, ids: Iterable[str]) -> list[Judgement] | None:
        """Return the rows of these ids if all of them were read, else None."""
        rows: list[Judgement] = []
        for identity in ids:
            row = self.rows.get(identity)
            if row is None or row.status not in WAS_READ:
                return None
            rows.append(row)
        return rows


RepliesOf = Callable[[Unit], Replies[Judgement]]
"""How many replies the questions of a unit may have."""


class Posed(NamedTuple, Generic[T]):
    """A question as it is sent: by which name, and under which seed."""

    question: Question[T]
    request_id: str
    seed: int


@dataclass(frozen=True, kw_only=True)
class JudgeRequest(Generic[S, T]):
    """A question to a judge about a subject, with the readings of its latest reply.

    `pose` makes the question of an attempt, by its number. At most `most` replies are allowed;
    `attempts` is the number used so far.
    """

    subject: S
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

    A verb's subclass defines the subjects, their questions and the stored rows. `line` leads to the
    judge, which may give `attempts` replies to each question. `committed` is called with the chunk
    of each committed unit.
    """

    row_type: ClassVar[type[Any]]
    run: Run
    iteration: int
    line: EngineClient
    attempts: int
    committed: Callable[[int], None] = lambda _: None

    @cached_property
    def identity(self) -> Mapping[str, Json]:
        """Every input of a row except its subject and the number of replies."""
        return self._depends_on()

    @property
    def params(self) -> Mapping[str, Json]:
        """The parameters of the units' keys, without the rows that they read."""
        return {**self.identity, "attempts": self.attempts}

    @property
    def judge(self) -> Served:
        """The judge's model."""
        return self.line.served

    @property
    def where(self) -> Places:
        """The places in which the judge runs."""
        return self.run.places.of(self.judge)

    @abstractmethod
    def _depends_on(self) -> Mapping[str, Json]:
        """Return the contents of `identity`."""

    @abstractmethod
    def _subjects(self, chunk: int) -> Iterable[S]:
        """Return the subjects of a chunk."""

    @abstractmethod
    def _pose(self, subject: S, attempt: int) -> Posed[T]:
        """Return the question about a subject in an attempt, counted from 0."""

    @abstractmethod
    def _ids(self, subject: S) -> Sequence[str]:
        """Return the ids of the rows of a subject."""

    @abstractmethod
    def _rows(self, request: JudgeRequest[S, T]) -> Iterable[Judgement]:
        """Return the rows of a subject after its last reply."""

    def _decide_without_judge(self, subject: S) -> Sequence[Reading[T]] | None:
        """Return the readings of a subject that is decided without the judge; None for others."""
        del subject

    def _filter_counts_of(self, requests: Sequence[JudgeRequest[S, T]]) -> Sequence[FilterCount]:
        """Return the filter counts of a unit."""
        del requests
        return ()

    def _inquiries(self, chunk: int, replies: Replies[Judgement]) -> Sequence[JudgeRequest[S, T]]:
        """Return the questions to the judge about a chunk."""
        return [self._inquiry(subject, replies) for subject in self._subjects(chunk)]

    def _judgements(
        self, requests: Sequence[JudgeRequest[S, T]], replies: Replies[Judgement]
    ) -> list[Judgement]:
        """Return the rows of a unit; rows that were read before are kept."""
        return [
            row
            for one in requests
            for row in replies.find_rows(self._ids(one.subject)) or self._rows(one)
        ]

    def guard(self, request: str) -> GuardKey:
        """Return the key by which a request to the judge is guarded, by its name."""
        return self.run.guard(request, self.judge)

    def run_units(self, stage: Stage, replies: RepliesOf[Judgement]) -> None:
        """Ask the judge for the pending rows of the stage.

        Raises:
            UnreadRepliesError: if too many of the replies cannot be read.
        """
        run, count = self.run, ReplyCount()

        def commit(unit: Unit, requests: Sequence[JudgeRequest[S, T]], cost: UnitStats) -> None:
            rows, notes = (
                self._judgements(requests, replies(unit)),
                self._filter_counts_of(requests),
            )
            commit_judgements(stage, unit, self.row_type, rows, cost, notes)
            self.committed(unit.chunk)
            for one in requests:
                for reading in one.readings if one.attempts else ():
                    count.add(reading.status, one.text)
            count.require_read(run.config, run.store.folder, stage.planned.stage, fewest=FEWEST)

        RequestDispatcher(
            run=run,
            line=self.line,
            work=lambda unit: self._inquiries(unit.chunk, replies(unit)),
            commit=commit,
        ).run_units(stage)

    def _inquiry(self, subject: S, replies: Replies[Judgement]) -> JudgeRequest[S, T]:
        request = JudgeRequest(subject=subject, pose=self._pose)
        readings = self._decide_without_judge(subject)
        if readings is not None:
            return replace(request, readings=readings)
        if replies.find_rows(self._ids(subject)):
            return request
        return replace(request, most=replies.most, attempts=replies.had)


def judge_line(
    run: Run, judge: Served, settings: JudgeSettings, *, temperature: float | None = None
) -> EngineClient:
    """Return the line to a judge that is sampled by `settings`, or at another temperature."""
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


def commit_judgements(
    stage: Stage,
    unit: Unit,
    row_type: type[AnyJudgement],
    rows: Sequence[AnyJudgement],
    cost: UnitStats,
    noted: Sequence[FilterCount] = (),
) -> None:
    """Commit the judgements of a unit, and count the unread ones."""
    unread = sum(row.status not in WAS_READ for row in rows)
    counts = {FilterCount: noted} if noted else {}
    stage.commit(unit, {row_type: rows, **counts}, replace(cost, rows=len(rows), unscored=unread))


def group_equal(
    candidates: Sequence[Candidate],
    how: EqualAnswers,
    besides: Callable[[Candidate], str | None] = lambda _: None,
) -> list[Alike]:
    """Return the answers in groups of equal ones, in each the smallest id first.

    Answers are equal if prompt, text (ignoring white space) and the caller's additional key are
    equal. If `how` is "each", every answer is a separate group.
    """
    if how == "each":
        return [(candidate,) for candidate in candidates]
    found = dict[tuple[str, str, str | None], list[Candidate]]()
    for one in candidates:
        content = (one.prompt_id, " ".join(one.text.split()), besides(one))
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
