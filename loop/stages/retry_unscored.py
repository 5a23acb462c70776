"""Comparisons without a verdict that are asked about again: `lpfloop resume --retry-unscored`.

A unit that is asked again keeps its verdicts, and takes another key, which says how many replies it
may have had; what was made of it is forgotten, and made again when the recipe comes to it. So it
is as if more replies had been allowed in the first place, and a unit that is lost later comes out
the same. What a model was trained on already stays as it is.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import polars as pl

from ...configs.schema import ConfigError
from ...stores.committer import Finished, if_there_is_room
from ...stores.journal import AMENDED
from ...stores.journal_reader import Reader, Unit
from ...stores.keys import Json, digest
from ...stores.packs import scan_parts
from ...stores.records import SCORED, Preference
from ...stores.schemas import TABLES, Batch, Row
from ..run.budget import cost_of
from ..run.handles import Planned
from ..run.reporter import Advance, served_by
from ..run.run import Run, Stage
from .annotate import Annotating

ANNOTATE, COMPARE = "annotate:", "compare:"
"""How the labels of the stages begin that compare."""
TRAINING = frozenset({"train", "train_reward", "ppo", "quark"})
"""The stages that train, by the first word of their labels."""
MADE_OF_IT = {ANNOTATE: "", COMPARE: "assess:"}
"""How the labels of later stages begin that read what such a stage compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unscored:
    """A stage with comparisons that have no verdict; `trained` if a model learned from the rest."""

    iteration: int
    stage: str
    rows: int
    trained: bool


def unscored(journal: Reader) -> list[Unscored]:
    """Return the stages that compared and did not read every verdict, in the order of planning."""
    parts = [
        part
        for part in journal.parts(table=TABLES[Preference])
        if part.stage.startswith((ANNOTATE, COMPARE))
    ]
    trained = {
        state.iteration
        for state in journal.stages()
        if state.done and state.stage.partition(":")[0] in TRAINING
    }
    found = list[Unscored]()
    for iteration, stage in dict.fromkeys((part.iteration, part.stage) for part in parts):
        own = [part for part in parts if (part.iteration, part.stage) == (iteration, stage)]
        missing = pl.col("status") != SCORED
        rows = scan_parts(journal.folder, TABLES[Preference], own).select(missing.sum())
        count = int(rows.collect(engine="in-memory").item())
        learned = stage.startswith(ANNOTATE) and iteration in trained
        if count:
            found.append(Unscored(iteration=iteration, stage=stage, rows=count, trained=learned))
    return found


def to_retry(journal: Reader) -> list[Unscored]:
    """Return the stages that can be asked again.

    Raises:
        ConfigError: if there are comparisons without a verdict, but models were trained since.
    """
    found = unscored(journal)
    open_ = [stage for stage in found if not stage.trained]
    if found and not open_:
        rows = sum(stage.rows for stage in found)
        numbers = ", ".join(map(str, sorted({stage.iteration for stage in found})))
        raise ConfigError(
            f"--retry-unscored: {rows} comparisons of run {journal.folder.name} have no verdict, "
            f"but iteration {numbers} has trained on the others already; `lpfloop run --fork "
            f"{journal.folder.name}` with more annotation.attempts makes another run"
        )
    return open_


def replies_so_far(journal: Reader, attempts: int) -> Callable[[Unit], range]:
    """Return which replies a unit may have had: `attempts` of them, or more if it was retried."""
    amended = cast("list[dict[str, Any]]", journal.events(AMENDED))
    counts = {str(event["unit"]): int(event["replies"]) for event in amended}
    return lambda unit: range(counts.get(unit.key, attempts))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Again:
    """A unit to ask again: what it has, how many comparisons it lacks, which replies may come."""

    before: str
    chunk: int
    rows: Mapping[str, Preference]
    unread: int
    replies: range


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying:
    """A stage whose unread comparisons are asked about again.

    `group` are the labels of all stages that compared the same answers.
    """

    run: Run
    planned: Planned
    group: Sequence[str]

    def pay(self, annotating: Annotating) -> None:
        """Ask `annotating` again.

        Raises:
            Stopped: if a stop was asked for, or a budget ended, before all were asked.
        """
        run, units = self.run, self._units()
        owed = [Unit(key=key, chunk=again.chunk) for key, again in units.items()]
        stage = Stage(planned=self.planned, owed=owed, commit=self._committing(units))
        where = (self.planned.iteration, self.planned.stage)
        run.stop.admit()
        run.budget.require_time_and_room()
        run.reporter.begin(where[0], f"retry:{where[1]}", planned=len(owed), done=0)
        started = time.monotonic()
        try:
            kept = {key: again.rows for key, again in units.items()}
            replace(annotating, kept=kept).pay(stage, lambda unit: units[unit.key].replies)
        finally:
            seconds = time.monotonic() - started
            run.budget.add_seconds(seconds)
            if_there_is_room(lambda: run.store.journal.add_seconds(*where, seconds))
            run.reporter.end()
        run.stop.check()
        run.budget.check()

    def _units(self) -> dict[str, _Again]:
        """Return the units that lack verdicts, by their new keys."""
        journal, more = self.run.store.journal, self.run.config.annotation.attempts
        had = replies_so_far(journal, more)
        found: dict[str, _Again] = {}
        for chunk, key in enumerate(self.planned.keys(journal)):
            rows = {row.preference_id: row for row in self.run.store.rows(Preference, key)}
            unread = sum(row.status != SCORED for row in rows.values())
            if unread:
                first = len(had(Unit(key=key, chunk=chunk)))
                found[digest([key, "replies", first + more])] = _Again(
                    before=key,
                    chunk=chunk,
                    rows=rows,
                    unread=unread,
                    replies=range(first, first + more),
                )
        return found

    def _committing(
        self, units: Mapping[str, _Again]
    ) -> Callable[[Unit, Mapping[type[Row], Batch], Advance], None]:
        def commit(unit: Unit, tables: Mapping[type[Row], Batch], done: Advance) -> None:
            run, again = self.run, units[unit.key]
            cost = cost_of(done, judge=True)
            more = replace(done, rows=0, unscored=done.unscored - again.unread)
            spent = {**more.numbers, "judge_calls": cost.judge_calls}
            result = Finished(unit=unit.key, tables=tables, telemetry=spent, served=served_by(done))
            why: Mapping[str, Json] = {"stage": self.planned.stage, "replies": again.replies.stop}
            run.store.amend(again.before, result, self._made_of_it(), why)
            run.budget.settle(unit.key, cost)
            run.reporter.advance(done)

        return commit

    def _made_of_it(self) -> list[str]:
        """Return the labels of the stages that read what is replaced."""
        states = self.run.store.journal.stages()
        labels = [state.stage for state in states if state.iteration == self.planned.iteration]
        later = max(labels.index(label) for label in self.group) + 1
        annotated = self.planned.stage.startswith(ANNOTATE)
        beginning = MADE_OF_IT[ANNOTATE if annotated else COMPARE]
        return [label for label in labels[later:] if label.startswith(beginning)]
