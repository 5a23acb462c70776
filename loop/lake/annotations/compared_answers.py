# pyright: basic
"""People's votes between two answers, over a whole run: the comparisons that others learn from.

For an imported run all votes count, as they were imported to be used; for a run with a loop only
people's, as the others are from its own annotators and judges.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from typing import TypeVar

import polars as pl

from ....stores.address import run_argument
from ....stores.derived import DerivedError, open_derived
from ....stores.frames import frame_rows
from ....stores.keys import digest
from ....stores.lake import RunReader
from ....stores.records import Candidate, Pair, Preference, Prompt
from ....stores.schemas import Row
from ...data.judged_candidates import TRUSTED
from ..imports import IMPORTED
from ..imports.imported_rows import IMPORTED as AS_PAIR

R = TypeVar("R", Preference, Pair)
AT_ONCE = 1000
SIDES = ["_one", "_other"]


def compared_digest(run: RunReader, table: str | None = None) -> str:
    """Return a hash of the comparisons of a run, which each new vote changes.

    With `table`, it is the hash of a derived table.
    """
    if table is not None:
        return open_derived(run.folder, table).identity
    votes, pairs = _votes(run), _pairs(run)
    return digest([sorted(votes["preference_id"]), sorted(pairs["pair_id"])])


def compared_answers(run: RunReader, iteration: int) -> Iterator[list[Row]]:
    """Give each comparison as rows of an iteration: prompt, answers, votes, and an imported pair.

    The answers and votes keep their ids, by which they are found in the run that they are from. All
    about a prompt comes together.
    """
    votes, pairs = _votes(run), _pairs(run)
    every = votes.select("prompt_id", *SIDES).unique(maintain_order=True)
    prompts, candidates = _texts(run)
    for keys in every.iter_slices(AT_ONCE):
        prompt_of, answers = _rows_about(prompts, candidates, keys, *SIDES)
        given = {
            (p.prompt_id, *sorted((p.chosen_id, p.rejected_id))): p
            for p in _rows(Pair, pairs.join(keys, on=["prompt_id", *SIDES], how="semi"))
        }
        matched = votes.join(keys, on=["prompt_id", *SIDES], how="semi", maintain_order="left")
        for key, group in groupby(_rows(Preference, matched), _key):
            prompt_id, one, other = key
            pair = given.get(key)
            yield [
                prompt_of[prompt_id],
                *(_from_elsewhere(answers[name], iteration) for name in (one, other)),
                *(replace(vote, iteration=iteration) for vote in group),
                *(() if pair is None else (replace(pair, iteration=iteration),)),
            ]


def paired_answers(
    run: RunReader, table: str, iteration: int
) -> Iterator[tuple[Prompt, Candidate, Candidate, Pair]]:
    """Give each pair of a derived table: prompt, chosen and rejected answer, and its row.

    Raises:
        DerivedError: if the table does not exist, or has rows other than pairs.
    """
    derived = open_derived(run.folder, table)
    derived.check()
    if "pairs" not in derived.tables:
        raise DerivedError(
            f"derived table {table} of run {run.folder.name} holds no pairs; `lpfloop "
            f"rebuild-pairs {run_argument(run.folder)} --rule RULE` makes some"
        )
    pairs = derived.scan("pairs").collect().sort("prompt_id", "rank", maintain_order=True)
    prompts, candidates = _texts(run)
    for some in pairs.iter_slices(AT_ONCE):
        prompt_of, answers = _rows_about(prompts, candidates, some, "chosen_id", "rejected_id")
        for pair in frame_rows(Pair, some):
            chosen, rejected = answers[pair.chosen_id], answers[pair.rejected_id]
            sides = _from_elsewhere(chosen, iteration), _from_elsewhere(rejected, iteration)
            yield prompt_of[pair.prompt_id], *sides, pair


def _texts(run: RunReader) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the prompts and the candidates of a run, each once."""
    prompts = run.scan("prompts").unique("prompt_id", maintain_order=True)
    candidates = run.scan("candidates").unique("candidate_id", maintain_order=True)
    return prompts.collect(), candidates.collect()


def _rows_about(
    prompts: pl.DataFrame, candidates: pl.DataFrame, keys: pl.DataFrame, one: str, other: str
) -> tuple[dict[str, Prompt], dict[str, Candidate]]:
    """Return the prompts and the two answers that rows name, by id."""
    asked = prompts.join(keys, on="prompt_id", how="semi")
    ids = pl.concat([keys[one], keys[other]])
    given = candidates.filter(pl.col("candidate_id").is_in(ids.implode()))
    return (
        {row.prompt_id: row for row in frame_rows(Prompt, asked)},
        {row.candidate_id: row for row in frame_rows(Candidate, given)},
    )


def _votes(run: RunReader) -> pl.DataFrame:
    """Return the votes that count, grouped by their two answers, the last one last."""
    rows = run.scan("preferences")
    if run.journal.meta(IMPORTED) is None:
        people = [pl.col("annotator").str.starts_with(name) for name in TRUSTED]
        rows = rows.filter(pl.any_horizontal(people))
    found = rows.unique("preference_id", maintain_order=True).collect()
    sided = _sort_sides(found, "first_id", "second_id")
    return sided.sort("prompt_id", *SIDES, "judged_at", "preference_id", nulls_last=False)


def _pairs(run: RunReader) -> pl.DataFrame:
    """Return the pairs that were imported as pairs; equal scores make a tie."""
    rows = run.scan("pairs").filter(pl.col("rule") == AS_PAIR)
    return _sort_sides(
        rows.unique("pair_id", maintain_order=True).collect(), "chosen_id", "rejected_id"
    )


def _sort_sides(rows: pl.DataFrame, first: str, second: str) -> pl.DataFrame:
    """Add the ids of the two answers in sorted order."""
    turned = pl.col(first) > pl.col(second)
    return rows.with_columns(
        _one=pl.when(turned).then(second).otherwise(first),
        _other=pl.when(turned).then(first).otherwise(second),
    )


def _key(vote: Preference) -> tuple[str, str, str]:
    one, other = sorted((vote.first_id, vote.second_id))
    return vote.prompt_id, one, other


def _rows(row_type: type[R], rows: pl.DataFrame) -> list[R]:
    return frame_rows(row_type, rows.drop(SIDES, strict=False))


def _from_elsewhere(answer: Candidate, iteration: int) -> Candidate:
    """Return an answer as one from outside: its sources are not in the new run."""
    return replace(answer, iteration=iteration, kind="external", parent_id=None, critique_id=None)
