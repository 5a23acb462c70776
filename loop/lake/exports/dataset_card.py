# pyright: basic
"""The dataset card of an export: its contents and its sources."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import yaml

from .... import __version__
from ....stores.digest import run_digest
from ....stores.lake import RunReader

HASHED_ROWS = 200_000
"""A run with more rows is not hashed for its card, which would take long."""
SIZES = {"n<1K": 1_000, "1K<n<10K": 10_000, "10K<n<100K": 100_000, "100K<n<1M": 1_000_000}
LARGER = "1M<n<10M"
LISTED = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """The written file with its rows, the table, the format."""

    title: str
    table: str
    form: str
    file: str
    rows: int
    tags: Sequence[str]
    iteration: int | None
    license: str | None
    lineage: Mapping[str, Any] | None


def card(run: RunReader, contents: Contents) -> str:
    """Return the card as Markdown with the YAML header that the Hugging Face hub takes."""
    size = next((name for name, limit in SIZES.items() if contents.rows < limit), LARGER)
    files = [{"split": "train", "path": contents.file}]
    header = {
        "pretty_name": contents.title,
        "license": contents.license or "unknown",
        "tags": ["lpfloop", *contents.tags],
        "task_categories": ["text-generation"],
        "size_categories": [size],
        "configs": [{"config_name": "default", "data_files": files}],
    }
    front = yaml.safe_dump(header, sort_keys=False, allow_unicode=True)
    which = "all iterations" if contents.iteration is None else f"iteration {contents.iteration}"
    about = (
        f"The {contents.table} of run `{run.folder.name}` ({which}) in the form `{contents.form}`, "
        f"written by lpfloop {__version__}."
    )
    file = _table(("file", "rows"), [(contents.file, contents.rows)])
    sections = (f"## {name}\n\n{body}" for name, body in _sections(run, contents) if body)
    return (
        f"---\n{front}---\n\n" + "\n\n".join([f"# {contents.title}", about, file, *sections]) + "\n"
    )


def _sections(run: RunReader, contents: Contents) -> Iterator[tuple[str, str]]:
    """Yield the title and the text of each section; it is left out if its text is empty."""
    prompts, config = run.scan("prompts"), json.loads(run.journal.meta("config") or "{}")
    yield "Prompts", _count(prompts, ("task", "split"), "prompts")
    for title, table, columns in (
        ("Models", "candidates", ("kind", "model", "policy")),
        ("Reward models", "rewards", ("reward_model",)),
        ("Critics", "critiques", ("critic", "status")),
    ):
        rows = run.scan(table, iteration=contents.iteration)
        yield title, _count(rows, columns, table)
    yield "Recipe", f"`{json.dumps(config['recipe'])}`" if config.get("recipe") else ""
    licence = contents.license or (
        "not stated; it depends on the sources and on the models that answered. State it with "
        "`--license`"
    )
    sources = _count(prompts, ("source",), "prompts")
    yield "Sources and licences", f"{sources}\n\nLicence: {licence}."
    yield "Lineage", _lineage(run, contents)


def _count(frame: pl.LazyFrame, columns: Sequence[str], what: str) -> str:
    """Return how many rows have the same values of columns, the most first; empty without rows."""
    down = [True, *[False] * len(columns)]
    counted = frame.group_by(columns).len(what).sort(what, *columns, descending=down)
    rows = counted.select(*columns, what).head(LISTED).collect().rows()
    return _table((*columns, what), rows) if rows else ""


def _lineage(run: RunReader, contents: Contents) -> str:
    if contents.lineage is not None:
        return f"```json\n{json.dumps(contents.lineage, indent=1)}\n```"
    if sum(part.rows for part in run.journal.parts()) <= HASHED_ROWS:
        return f"Digest of the run: `{run_digest(run.folder)}`."
    return f"`lpfloop lake digest {run.folder.name}` prints the digest of the run."


def _table(header: Sequence[str], rows: Any) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(_cell(value) for value in line) + " |" for line in lines)


def _cell(value: object) -> str:
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return " ".join(text.split()).replace("|", "\\|")
