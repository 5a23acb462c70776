"""All rows on one prompt, which `lpfloop show` presents."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

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
from ...data.judged_candidates import Deciding
from ..query.model_names import checkpoints
from .find_row import Found, NoSuchIdError

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

    `asked` is the requested id: the prompt's or one of its rows'. `deciding` is the annotator whose
    ratings decide if a candidate has several critiques.
    """

    run: str
    asked: Found
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
    yields: list[PairingOutcome]
    scores: list[Score]
    checkpoints: list[Checkpoint]
    derived: list[DerivedRows]
    unpaired_answers: list[UnpairedAnswer] = field(default_factory=list[UnpairedAnswer])
    deciding: Deciding = field(default_factory=Deciding)


def prompt_story(run: RunReader, asked: Found, iteration: int | None = None) -> Story:
    """Return the story of the prompt that `asked` is about, of all iterations or of one."""
    about = asked.prompt_id
    if about is None:
        raise NoSuchIdError(f"{asked.kind} {asked.id} does not belong to a prompt")
    made = [TABLES[row_type] for row_type in MADE_OF_A_PROMPT]
    frames = [
        *run.about(about, [TABLES[Prompt]]),
        *run.about(about, made, iteration=iteration),
    ]
    found = dict(zip((Prompt, *MADE_OF_A_PROMPT), pl.collect_all(frames), strict=True))

    def rows(row_type: type[R]) -> list[R]:
        return frame_rows(row_type, found[row_type])

    return Story(
        run=run.folder.name,
        asked=asked,
        prompt=rows(Prompt)[0],
        candidates=rows(Candidate),
        critiques=rows(Critique),
        rewards=rows(Reward),
        preferences=rows(Preference),
        grades=rows(Grade),
        breakdowns=rows(Breakdown),
        claims=rows(Claim),
        pairs=rows(Pair),
        demonstrations=rows(Demonstration),
        unpaired_answers=rows(UnpairedAnswer),
        yields=rows(PairingOutcome),
        scores=rows(Score),
        checkpoints=checkpoints(run),
        derived=[_derived(run, name, asked, iteration) for name in derived_names(run.folder)],
        deciding=Deciding.of(json.loads(run.journal.meta("config") or "{}")),
    )


def _derived(run: RunReader, name: str, asked: Found, iteration: int | None) -> DerivedRows:
    derived = open_derived(run.folder, name)

    def rows(row_type: type[R]) -> list[R]:
        table = TABLES[row_type]
        if table not in derived.tables:
            return []
        found = frame_rows(row_type, _about(derived.scan(table), asked.prompt_id))
        return [row for row in found if iteration in (None, getattr(row, "iteration", None))]

    return DerivedRows(
        name=name,
        pairs=rows(Pair),
        demonstrations=rows(Demonstration),
        unpaired_answers=rows(UnpairedAnswer),
    )


def _about(rows: pl.LazyFrame, prompt_id: str | None) -> pl.DataFrame:
    """Return the rows about a prompt, without reading other rows' texts.

    Each iteration's are adjacent, also in a table that is not sorted by prompt.
    """
    found = (
        rows.select("prompt_id").with_row_index("place").filter(pl.col("prompt_id") == prompt_id)
    )
    places = found.select("place").collect()["place"].to_list()
    parts = [rows.slice(first, count) for first, count in _stretches(places)]
    return pl.concat(pl.collect_all(parts)) if parts else rows.head(0).collect()


def _stretches(places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield stretches of consecutive numbers: the first, and how many."""
    for _, group in groupby(enumerate(places), key=lambda pair: pair[1] - pair[0]):
        numbers = [place for _, place in group]
        yield numbers[0], len(numbers)
