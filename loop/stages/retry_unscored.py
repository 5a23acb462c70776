"""Asking again for judgements that could not be read: `lpfloop resume --retry-unscored`.

A retried unit keeps its readable rows and takes another key, which contains the number of replies
that its questions may have had. The journal knows the stages made from it; they are discarded and
made again when the recipe reaches them. So the result equals a run that allowed more replies from
the start, and a unit that is lost later comes out the same. A stage is not retried if a finished
training depends on it.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import polars as pl

from ...configs.schema import ConfigError
from ...critics.status import WAS_READ
from ...policies.trainers.job import ONLINE
from ...stores.address import run_argument
from ...stores.committer import Finished, if_there_is_room
from ...stores.frames import rows_frame
from ...stores.journal import AMENDED
from ...stores.journal_reader import Reader, StageId, Unit
from ...stores.keys import digest
from ...stores.records import Breakdown, Claim, Critique, Grade, Preference, PromptReview
from ...stores.schemas import TABLES, RowsByType
from ...stores.side_evals import smoke_test_of
from ...stores.stage_files import scan_parts
from ..data.judged_candidates import VERIFIER
from ..data.splits import DEV, HELD_OUT, is_measured_on
from ..data.stage_names import critique_label
from ..data.step_names import step_of
from ..run.budget import cost_of
from ..run.handles import Planned
from ..run.reporter import UnitStats, served_by
from ..run.run import Work
from ..run.stage import Stage
from ..run.wall_time import StageTime
from .judging import JudgedStage, Replies

REVIEW = "prompts:review"
"""The stage of the reviews of prompts."""
EVALUATED, BEST = "evaluate:", "best"
"""Prefix of the labels of evaluated answers, and the label of the best of several."""
NAMING = frozenset({"compare", "annotate", "grade", "score_answers"})
"""The verbs of stages whose labels end with the judge, the aspect or the form."""


TRAINING = frozenset({"train", "train_reward"}) | ONLINE
"""The stages that train, by the first word of their labels."""


class JudgementKind(NamedTuple):
    """A kind of judgement: its row type, and the setting that allows more replies.

    `condition` selects rows of a model whose verdict may differ in another reply.
    """

    noun: str
    row_type: type[Any]
    identity: str
    setting: str
    condition: pl.Expr

    @property
    def unread(self) -> pl.Expr:
        """Select rows of a model whose reply could not be read."""
        return self.condition & ~pl.col("status").is_in(sorted(WAS_READ))


_ANSWERED = pl.col("attempts") > 0
# A verifier repeats its verdict.
_BY_MODEL = _ANSWERED & (pl.col("critic") != VERIFIER)
_ALL = pl.lit(value=True)
_COMPARISONS = JudgementKind(
    "comparisons", Preference, "preference_id", "annotation.attempts", _ALL
)
KINDS: Mapping[str, JudgementKind] = {
    "critique": JudgementKind("critiques", Critique, "critique_id", "critic.attempts", _BY_MODEL),
    "grade": JudgementKind("grades", Grade, "grade_id", "grading.attempts", _ANSWERED),
    "score_answers": JudgementKind(
        "scores", Grade, "grade_id", "assessment.judge.attempts", _ANSWERED
    ),
    "annotate": _COMPARISONS,
    "compare": _COMPARISONS,
    "break_up": JudgementKind("passages", Breakdown, "breakdown_id", "critic.attempts", _ANSWERED),
    "judge_claims": JudgementKind("statements", Claim, "claim_id", "critic.attempts", _ANSWERED),
    REVIEW: JudgementKind("reviews", PromptReview, "prompt_id", "prompts.quality.attempts", _ALL),
}
"""By the first word of a stage's label, or by the label."""


def kind_of(label: str) -> JudgementKind | None:
    """Return the kind of judgements that the loop made in a stage, or None."""
    verb, _, about = label.partition(":")
    if is_import(label) or smoke_test_of(label):
        return None
    # Answers to the user's additional prompts are evaluated outside the loop, which never resumes
    # there.
    if about.startswith(EVALUATED) and not _is_of_loop(label):
        return None
    return KINDS.get(verb) or KINDS.get(label)


def is_evaluation(label: str) -> bool:
    """Whether a stage judged answers to evaluate them, so that nothing is trained on it."""
    about = label.partition(":")[2]
    return about.startswith(EVALUATED) or about.split(":")[0] == BEST


def _is_of_loop(label: str) -> bool:
    """Whether a stage judged answers to the run's own dev or held-out prompts."""
    verb, _, answers = critique_label(label).partition(":")
    if verb in NAMING:
        answers = answers.rpartition(":")[0]
    benchmark = answers.removeprefix(EVALUATED)
    at_step = step_of(benchmark)
    own = benchmark if at_step is None else at_step[1]
    return any(is_measured_on(own, split) for split in (DEV, HELD_OUT))


def is_import(name: str) -> bool:
    """Whether a stage contains annotations imported for a run's answers.

    Its label consists of the verb and a hash.
    """
    return name.startswith("annotate:") and name.count(":") == 1


def run_judgements(judging: JudgedStage[Any, Any, Any], label: str, work: Work) -> Planned:
    """Run a stage of judgements, retry it if the user asked for that, and return the stage.

    Raises:
        Stopped: if a stop, or the end of a budget, came before the last judgement.
    """
    run, iteration = judging.run, judging.iteration
    replies = replies_so_far(run.store.journal, judging.attempts)
    planned = run.run_stage(
        iteration,
        label,
        work,
        lambda stage: judging.run_units(stage, replies),
        places=judging.where,
        judge=True,
    )
    kind = kind_of(label)
    if kind is not None and (iteration, label) in run.retry:
        # Retried units take other keys, which later stages read, so other stages must be idle.
        run.flow.settle()
        run.retry.remove((iteration, label))
        _retry(judging, planned, kind)
    return planned


@dataclass(frozen=True, slots=True, kw_only=True)
class Unscored:
    """A stage with judgements that could not be read.

    `trained` is the first iteration with a finished training that depends on it, if there is one.
    """

    kind: JudgementKind
    iteration: int
    stage: str
    rows: int
    trained: int | None


def unscored_stages(journal: Reader) -> list[Unscored]:
    """Return the stages that judged and could not read everything, in the order of planning."""
    found = list[Unscored]()
    for state in journal.stages():
        kind = kind_of(state.stage)
        rows = 0 if kind is None else _unread(journal, kind, (state.iteration, state.stage))
        if kind is not None and rows:
            found.append(
                Unscored(
                    kind=kind,
                    iteration=state.iteration,
                    stage=state.stage,
                    rows=rows,
                    trained=min(trained_on(journal, state.iteration, state.stage), default=None),
                )
            )
    return found


def trained_on(journal: Reader, iteration: int, label: str) -> list[int]:
    """Return the iterations with a finished training that depends on a stage."""
    later = {*journal.downstream(iteration, label).places}
    return [
        state.iteration
        for state in journal.stages()
        if (state.iteration, state.stage) in later
        and state.done
        and state.stage.partition(":")[0] in TRAINING
    ]


def to_retry(journal: Reader) -> list[Unscored]:
    """Return the stages that can be retried.

    Raises:
        ConfigError: if there are unread judgements, but models were trained since.
    """
    found = unscored_stages(journal)
    open_ = [stage for stage in found if stage.trained is None]
    if found and not open_:
        name = journal.folder.name
        numbers = ", ".join(map(str, sorted({stage.trained or 0 for stage in found})))
        settings = " and ".join(dict.fromkeys(stage.kind.setting for stage in found))
        raise ConfigError(
            f"--retry-unscored: {count_unread(found)} of run {name} could not be read, "
            f"but iteration "
            f"{numbers} has trained on the others already; `lpfloop run --reuse-from "
            f"{run_argument(journal.folder)}` with more "
            f"{settings} makes another run"
        )
    return open_


def count_unread(stages: Sequence[Unscored]) -> str:
    """Return the number of unread judgements of each kind as text."""
    counts = Counter[str]()
    for stage in stages:
        counts[stage.kind.noun] += stage.rows
    nouns = dict.fromkeys(kind.noun for kind in KINDS.values())
    return " and ".join(f"{counts[noun]:,} {noun}" for noun in nouns if counts[noun])


def replies_so_far(journal: Reader, attempts: int) -> Callable[[Unit], Replies[Any]]:
    """Return how many replies a unit may have: `attempts` of them, or more if it was retried."""
    amended = cast("list[dict[str, Any]]", journal.events(AMENDED))
    counts = {str(event["unit"]): int(event["replies"]) for event in amended}
    return lambda unit: Replies(most=counts.get(unit.key, attempts))


def _unread(journal: Reader, kind: JudgementKind, place: StageId) -> int:
    iteration, label = place
    table = TABLES[kind.row_type]
    parts = [p for p in journal.parts(table=table, iteration=iteration) if p.stage == label]
    rows = scan_parts(journal, table, parts).select(kind.unread.sum())
    return int(rows.collect(engine="in-memory").item() or 0)


def _retry(judging: JudgedStage[Any, Any, Any], planned: Planned, kind: JudgementKind) -> None:
    """Ask the judge again about what could not be read.

    Raises:
        Stopped: if a stop, or the end of a budget, came before the last judgement.
    """
    run, units = judging.run, dict(_again(judging, planned, kind))
    where, shown = (planned.iteration, planned.stage), f"retry:{planned.stage}"

    def commit(unit: Unit, tables: RowsByType, done: UnitStats) -> None:
        before, replies = units[unit.key]
        unread = sum(row.status not in WAS_READ for row in replies.rows.values())
        cost = cost_of(done, judge=True)
        more = replace(done, rows=0, unscored=done.unscored - unread)
        spent = {**more.numbers, "judge_calls": cost.judge_calls, "judge_tokens": more.tokens}
        result = Finished(unit=unit.key, tables=tables, telemetry=spent, served=served_by(done))
        why = {"stage": planned.stage, "replies": replies.most}
        downstream = run.store.amend(before.key, result, why)
        # Judgements among them are made again, and may have as many replies.
        run.retry.update(place for place in downstream.places if kind_of(place[1]))
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
        judging.run_units(stage, lambda unit: units[unit.key][1])
    finally:
        seconds, _ = time_.end()
        if_there_is_room(lambda: run.store.journal.add_seconds(*where, seconds))
        run.reporter.end(planned.iteration, shown)
    run.stop.check()
    run.budget.check()


def _again(
    judging: JudgedStage[Any, Any, Any], planned: Planned, kind: JudgementKind
) -> Iterator[tuple[str, tuple[Unit, Replies[Any]]]]:
    """Yield the units that lack something, by their new keys, with the replies that may come."""
    store, more = judging.run.store, judging.attempts
    had = replies_so_far(store.journal, more)
    for chunk, key in enumerate(planned.keys(store.journal)):
        rows, before = store.rows(kind.row_type, key), Unit(key=key, chunk=chunk)
        if not rows_frame(kind.row_type, rows).filter(kind.unread).is_empty():
            first, by_id = had(before).most, {getattr(row, kind.identity): row for row in rows}
            replies = Replies(most=first + more, had=first, rows=by_id)
            yield digest([key, "replies", first + more]), (before, replies)
