"""Asking a judge about what units owe, and again about what could not be read.

A reply that cannot be read is never a number: the judge is asked again, in the same stream, under a
new derived seed and at another temperature, until the replies that may be asked for are used up.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, NamedTuple, Self, TypeVar

from ...configs.annotation import AnswerJudge
from ...configs.filters import PromptQuality
from ...configs.schema import CriticConfig, GradingConfig
from ...critics.guard import GUARDED, MARK_TOKENS, OBJECT_TOKENS
from ...critics.judge import Question, Reading
from ...critics.status import WAS_READ, Status
from ...policies.engines.engine import Completion, Request, Sampling
from ...stores.journal_reader import Unit
from ...stores.keys import Json
from ...stores.records import (
    Breakdown,
    Claim,
    Critique,
    Grade,
    Preference,
    PromptReview,
    Receipt,
    storable,
)
from ..run.lines import EngineLine, engine_sampling
from ..run.models import Served
from ..run.pump import Pump
from ..run.reporter import Advance
from ..run.run import Run
from ..run.stage import Stage
from ..run.stage_places import Places
from ..run.unread_replies import FEWEST, ReplyCount

S = TypeVar("S")
T = TypeVar("T")
A = TypeVar("A", bound="JudgeInquiry[Any, Any]")
JudgeSettings = CriticConfig | GradingConfig | PromptQuality | AnswerJudge
Judgement = TypeVar("Judgement", Critique, Grade, Preference, PromptReview, Breakdown, Claim)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replies(Generic[Judgement]):
    """How many replies each question of a unit may have, `most`, and how many it `had` before.

    `rows` are those that the unit has already, by id: what was read of them stays.
    """

    most: int
    had: int = 0
    rows: Mapping[str, Judgement] = field(default_factory=dict[str, Judgement])

    def kept(self, ids: Iterable[str]) -> list[Judgement] | None:
        """Return the rows of these ids if all of them were read, so that they are not asked for."""
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
class JudgeInquiry(Generic[S, T]):
    """What a judge is asked about, with what its latest reply says.

    `pose` says how it is asked for a reply, by its number. It may have `most` replies, and had
    `attempts` of them.
    """

    subject: S
    pose: Callable[[S, int], Posed[T]]
    most: int = 0
    readings: Sequence[Reading[T]] = ()
    text: str = ""
    attempts: int = 0

    @cached_property
    def posed(self) -> Posed[T]:
        """How it is asked next."""
        return self.pose(self.subject, self.attempts)

    @property
    def settled(self) -> bool:
        """Whether nothing is to be asked any more: a request that failed would fail again."""
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

    def heard(self, answer: Completion) -> Sequence[Self]:
        """Return it after a reply."""
        text = storable(answer.text)
        readings = self.posed.question.read(text, answer.finish_reason)
        return [replace(self, attempts=self.attempts + 1, text=text, readings=readings)]


def ask_judge(
    line: EngineLine,
    stage: Stage,
    row_type: type[Judgement],
    *,
    work: Callable[[Unit], Sequence[A]],
    rows: Callable[[Unit, Sequence[A]], Sequence[Judgement]],
    noted: Callable[[Sequence[A]], Sequence[Receipt]] = lambda _: (),
) -> None:
    """Ask a judge what a stage owes.

    `work` gives what is asked for a unit when its turn has come, and `rows` what is stored of it
    once it is settled, with the receipts that are `noted` of what was not asked.

    Raises:
        UnreadRepliesError: if too many of the replies cannot be read.
    """
    run, count = line.run, ReplyCount()

    def commit(unit: Unit, asked: Sequence[A], cost: Advance) -> None:
        commit_judgements(stage, unit, row_type, rows(unit, asked), cost, noted(asked))
        for one in asked:
            for reading in one.readings if one.attempts else ():
                count.add(reading.status, one.text)
        count.require_read(run.config, run.store.folder, stage.planned.stage, fewest=FEWEST)

    Pump(run=line.run, line=line, work=work, commit=commit).pay(stage)


@dataclass(frozen=True, kw_only=True)
class JudgedStage(Generic[S, T, Judgement]):
    """A stage in which a judge is asked about subjects, each by itself.

    `subjects` gives those of a chunk when it is its turn, and `pose` how a subject is asked about
    in an attempt, by its number. `rows` makes the rows of a settled subject, whose ids are `ids`.
    `unasked` gives the readings of a subject that nobody is asked about, or None.
    """

    run: Run
    judge: Served
    settings: JudgeSettings
    row_type: type[Judgement]
    subjects: Callable[[int], Iterable[S]]
    pose: Callable[[S, int], Posed[T]]
    ids: Callable[[S], Sequence[str]]
    rows: Callable[[JudgeInquiry[S, T]], Iterable[Judgement]]
    unasked: Callable[[S], Sequence[Reading[T]] | None] = lambda _: None

    @property
    def attempts(self) -> int:
        """How many replies to a question are asked for at once."""
        return self.settings.attempts

    @property
    def where(self) -> Places:
        """Where the judge is asked."""
        return self.run.places.of(self.judge)

    def pay(self, stage: Stage, replies: RepliesOf[Judgement]) -> None:
        """Ask the judge what the stage owes."""
        ask_judge(
            judge_line(self.run, self.judge, self.settings),
            stage,
            self.row_type,
            work=lambda unit: [
                self._inquiry(subject, replies(unit)) for subject in self.subjects(unit.chunk)
            ],
            rows=lambda unit, asked: [
                row
                for one in asked
                for row in replies(unit).kept(self.ids(one.subject)) or self.rows(one)
            ],
        )

    def _inquiry(self, subject: S, replies: Replies[Judgement]) -> JudgeInquiry[S, T]:
        readings = self.unasked(subject)
        if readings is not None:
            return JudgeInquiry(subject=subject, pose=self.pose, readings=readings)
        if replies.kept(self.ids(subject)):
            return JudgeInquiry(subject=subject, pose=self.pose)
        return JudgeInquiry(
            subject=subject, pose=self.pose, most=replies.most, attempts=replies.had
        )


def judge_line(
    run: Run, judge: Served, settings: JudgeSettings, *, temperature: float | None = None
) -> EngineLine:
    """Return the line to a judge that is asked as `settings` say, or at another temperature."""
    first = with_room(run, judge, engine_sampling(settings.sampling, temperature=temperature))
    again = replace(first, temperature=settings.retry_temperature)
    return EngineLine(run=run, served=judge, first=first, again=again, judge=True)


def with_room(run: Run, judge: Served, sampling: Sampling) -> Sampling:
    """Return how a judge is sampled: with room for the mark, if there is one."""
    if not run.config.guard:
        return sampling
    more = OBJECT_TOKENS if judge.by_schema else MARK_TOKENS
    return replace(sampling, max_tokens=sampling.max_tokens + more)


def guard_params(run: Run, judge: Served) -> Mapping[str, Json]:
    """Return what of guarding can change what a judge says: nothing if questions are bare."""
    if not run.config.guard:
        return {}
    return {"guard": GUARDED, **({"reply": "object"} if judge.by_schema else {})}


def judge_params(run: Run, judge: Served, settings: JudgeSettings) -> Mapping[str, Json]:
    """Return what of a judge, and of how it is asked, can change what it says.

    Not how many replies it may give: that can change only what none of the earlier ones said.
    """
    return {
        **guard_params(run, judge),
        "served": judge.params,
        "sampling": settings.sampling.model_dump(mode="json"),
        "retry_temperature": settings.retry_temperature,
    }


def commit_judgements(
    stage: Stage,
    unit: Unit,
    row_type: type[Judgement],
    rows: Sequence[Judgement],
    cost: Advance,
    noted: Sequence[Receipt] = (),
) -> None:
    """Commit what was said for a unit, and count what could not be read."""
    unread = sum(row.status not in WAS_READ for row in rows)
    told = {Receipt: noted} if noted else {}
    stage.commit(unit, {row_type: rows, **told}, replace(cost, rows=len(rows), unscored=unread))
