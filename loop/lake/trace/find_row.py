"""Finding the run and the prompt of an id, or of the beginning of one.

Only the table that can hold the id is read, and of it only the columns with ids. A model may also
be called by its place in the run: `M_2`, `latest`, `best` (`model_names`).
"""

import re
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from ....stores.derived import derived_names, open_derived
from ....stores.lake import RunReader, run_names
from ..query.model_names import model_name, model_of, open_with_models
from ..query.runs import open_run

_IDS = (
    ("", "prompt", "prompts", "prompt_id"),
    ("cand-", "candidate", "candidates", "candidate_id"),
    ("crit-", "critique", "critiques", "critique_id"),
    ("pref-", "preference", "preferences", "preference_id"),
    ("grade-", "grade", "grades", "grade_id"),
    ("broken-", "breakdown", "breakdowns", "breakdown_id"),
    ("claim-", "claim", "claims", "claim_id"),
    ("pair-", "pair", "pairs", "pair_id"),
    ("demo-", "demonstration", "demonstrations", "demonstration_id"),
    ("unp-", "unpaired answer", "unpaired_answers", "unpaired_id"),
    ("", "checkpoint", "checkpoints", "checkpoint_id"),
)
"""How the ids of each kind begin, if always in the same way, and their table and column."""
COLUMNS = {kind: (table, column) for _, kind, table, column in _IDS}
HEXADECIMAL = re.compile(r"[0-9a-f]{1,64}")


class NoSuchIdError(ValueError):
    """An id that is in no run, or an ambiguous beginning of one."""

    code = "LPF-202"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The row that an id names: `prompt_id` is its prompt; None for a checkpoint."""

    kind: str
    id: str
    prompt_id: str | None


def find_run(lake: Path, text: str, name: str | None) -> tuple[RunReader, Found]:
    """Return the run that has an id (the latest, or the named one), and the row that the id names.

    Raises:
        NoSuchIdError: if the id is in no run, or several ids begin with it.
        NoSuchRunError: if it is a model's name such as `M_2`, and the run lacks that model.
    """
    called = model_name(text)
    names = [name] if name else [*reversed(run_names(lake))]
    if called is not None and not (name and called.run):
        text, names = called.which, [called.run or name]
    for one in names:
        with ExitStack() as opened:
            run = open_run(lake, one) if called is None else open_with_models(lake, one)
            opened.enter_context(closing(run))
            found = lookup(run, text)
            if found is not None:
                opened.pop_all()
                return run, found
    raise _unknown(text, f"run {names[0]}" if name or called else f"any run of {lake}")


def find(run: RunReader, text: str) -> Found:
    """Return the row that an id, or the beginning of one, names in a run.

    Raises:
        NoSuchIdError: if it names nothing, or several rows.
    """
    found = lookup(run, text)
    if found is None:
        raise _unknown(text, f"run {run.folder.name}")
    return found


def lookup(run: RunReader, text: str) -> Found | None:
    """Return the row that an id names in a run, or None.

    An exact match takes precedence over ids that begin with the text, and over a model's name such
    as `M_2`.

    Raises:
        NoSuchIdError: if several ids begin with it and none equals it.
        NoSuchRunError: if it is a model's name, and the run lacks that model.
    """
    if not text:
        raise NoSuchIdError("the id is empty: give an id, or the beginning of one")
    found = [one for kind in _kinds(text) for one in _matches(run, kind, text)]
    exact = [one for one in found if one.id == text]
    if exact:
        return exact[0]
    if model_name(text) is not None:
        return Found(kind="checkpoint", id=model_of(run, text).checkpoint_id, prompt_id=None)
    if len(found) == 1:
        return found[0]
    if found:
        raise NoSuchIdError(
            f"{len(found)} ids begin with {text!r}, such as {found[0].id} and {found[1].id}: "
            "give more characters"
        )
    return None


def _kinds(text: str) -> list[str]:
    """Return the kinds of row an id of this form can name; a prompt's id can have any form."""
    kinds: list[str] = [kind for prefix, kind, *_ in _IDS if prefix and text.startswith(prefix)]
    if HEXADECIMAL.fullmatch(text):
        kinds.append("checkpoint")
    return [*kinds, "prompt"]


def _matches(run: RunReader, kind: str, text: str) -> list[Found]:
    table, column = COLUMNS[kind]
    columns = {column} if kind == "checkpoint" else {column, "prompt_id"}
    derived = [open_derived(run.folder, name) for name in derived_names(run.folder)]
    prompt = pl.lit(None, pl.String) if kind == "checkpoint" else pl.col("prompt_id")
    named = [
        frame.select(pl.col(column).alias("id"), prompt.alias("prompt")).filter(
            pl.col("id").str.starts_with(text)
        )
        for frame in (
            run.scan(table, columns=columns),
            *(one.scan(table) for one in derived if table in one.tables),
        )
    ]
    rows = pl.concat(pl.collect_all(named)).unique(maintain_order=True)
    return [Found(kind=kind, id=identity, prompt_id=about) for identity, about in rows.iter_rows()]


def _unknown(text: str, where: str) -> NoSuchIdError:
    return NoSuchIdError(
        f"id {text!r} is not in {where}; `lpfloop critiques RUN` and `lpfloop pairs RUN` list ids"
    )
