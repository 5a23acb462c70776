"""All rows on one prompt, which `lpfloop show` and the viewer present."""

import json
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from ....stores.derived import derived_names, open_derived
from ....stores.frames import frame_rows
from ....stores.lake import RunReader
from ....stores.records import (
    Breakdown,
    Candidate,
    Checkpoint,
    Claim,
    Critique,
    Demonstration,
    Grade,
    Pair,
    PairingOutcome,
    Preference,
    Prompt,
    Reward,
    Score,
    UnpairedAnswer,
)
from ....stores.schemas import TABLES, R, Row
from ....stores.side_evals import smoke_test_of
from ....stores.stage_files import scan
from ....stores.verified import Some
from ...data.judged_candidates import Deciding, last_of_candidate, verdicts
from ..query.model_names import checkpoints
from .find_row import COLUMNS, Found, NoSuchIdError

MADE_OF_A_PROMPT: tuple[type[Row], ...] = (
    Candidate,
    Critique,
    Reward,
    Preference,
    Grade,
    Breakdown,
    Claim,
    Pair,
    Demonstration,
    UnpairedAnswer,
    PairingOutcome,
    Score,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivedRows:
    """A derived table's rows on the prompt."""

    name: str
    pairs: list[Pair]
    demonstrations: list[Demonstration]
    unpaired_answers: list[UnpairedAnswer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A prompt with its candidates, their judgments, and the rows made from them.

    `requested` is the id of the prompt or of one of its rows. `deciding` is the annotator whose
    ratings decide if a candidate has several critiques, and `successes` are the candidates that
    are successes by the last one. `smoke_tested` are those that the smoke test drew: the loop does
    not use them.
    """

    run: str
    requested: Found
    prompt: Prompt
    candidates: list[Candidate]
    critiques: list[Critique]
    rewards: list[Reward]
    preferences: list[Preference]
    grades: list[Grade]
    breakdowns: list[Breakdown]
    claims: list[Claim]
    pairs: list[Pair]
    demonstrations: list[Demonstration]
    pairing_outcomes: list[PairingOutcome]
    scores: list[Score]
    checkpoints: list[Checkpoint]
    derived: list[DerivedRows]
    unpaired_answers: list[UnpairedAnswer] = field(default_factory=list[UnpairedAnswer])
    deciding: Deciding = field(default_factory=Deciding)
    successes: list[str] = field(default_factory=list[str])
    smoke_tested: list[str] = field(default_factory=list[str])

    @property
    def iterations(self) -> list[int]:
        """The iterations that have rows on the prompt."""
        return sorted({row.iteration for row in (*self.candidates, *self.pairing_outcomes)})

    @property
    def shown_iteration(self) -> int | None:
        """The iteration of the requested row; of the prompt itself, the last one."""
        table, column = COLUMNS[self.requested.kind]
        rows: list[Any] = [] if table == TABLES[Prompt] else getattr(self, table)
        found = [row.iteration for row in rows if getattr(row, column) == self.requested.id]
        return next(iter(found), max(self.iterations, default=None))


def prompt_story(run: RunReader, requested: Found, iteration: int | None = None) -> Story:
    """Return the story of the prompt that `requested` is about, of all iterations or of one.

    Raises:
        NoSuchIdError: if the run has no such prompt.
    """
    about = requested.prompt_id
    tables = [TABLES[row_type] for row_type in MADE_OF_A_PROMPT]
    frames = [
        *run.about(about or "", [TABLES[Prompt]]),
        *run.about(about or "", tables, iteration=iteration),
    ]
    prompts, *found = pl.collect_all(frames)
    if about is None or not prompts.height:
        raise NoSuchIdError(
            f"{requested.kind} {requested.id!r} is about no prompt of run {run.folder.name}"
        )
    rows: dict[str, Any] = {
        table: frame_rows(row_type, frame)
        for table, row_type, frame in zip(tables, MADE_OF_A_PROMPT, found, strict=True)
    }
    deciding = Deciding.of(json.loads(run.journal.meta("config") or "{}"))
    last = last_of_candidate(verdicts(found[tables.index(TABLES[Critique])], deciding))
    return Story(
        run=run.folder.name,
        requested=requested,
        prompt=frame_rows(Prompt, prompts)[0],
        **rows,
        checkpoints=checkpoints(run),
        derived=[_derived_rows(run, name, about, iteration) for name in derived_names(run.folder)],
        deciding=deciding,
        successes=sorted(last.filter("success")["candidate_id"]),
        smoke_tested=_smoke_tested(run, about),
    )


def _smoke_tested(run: RunReader, about: str) -> list[str]:
    table = TABLES[Candidate]
    files = [f for f in run.journal.files(table=table) if f.sealed and smoke_test_of(f.stage)]
    frame = scan(run.folder, table, files, Some(prompt_id=about)).select("candidate_id").collect()
    return sorted(frame["candidate_id"])


def _derived_rows(run: RunReader, name: str, about: str, iteration: int | None) -> DerivedRows:
    derived = open_derived(run.folder, name)

    def rows(row_type: type[R]) -> list[R]:
        if TABLES[row_type] not in derived.tables:
            return []
        found = derived.scan(TABLES[row_type]).filter(pl.col("prompt_id") == about)
        if iteration is not None:
            found = found.filter(pl.col("iteration") == iteration)
        return frame_rows(row_type, found.collect())

    return DerivedRows(
        name=name,
        pairs=rows(Pair),
        demonstrations=rows(Demonstration),
        unpaired_answers=rows(UnpairedAnswer),
    )
