# pyright: basic
"""The dataset card of an export: its contents and its sources."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import yaml

from .... import __version__
from ....configs.schema import ConfigError
from ....critics.feedback import load_aspects
from ....stores.digest import run_digest
from ....stores.lake import RunReader

HASHED_ROWS = 200_000
"""A run with more rows is not hashed for its card, which would take long."""
SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
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
    header = yaml.safe_dump(_header(contents), sort_keys=False, allow_unicode=True)
    body = "\n\n".join(section for section in _sections(run, contents) if section)
    return f"---\n{header}---\n\n{body}\n"


def _header(contents: Contents) -> dict[str, Any]:
    size = next((name for limit, name in SIZES if contents.rows < limit), LARGER)
    files = [{"split": "train", "path": contents.file}]
    return {
        "pretty_name": contents.title,
        "license": contents.license or "unknown",
        "tags": ["lpfloop", *contents.tags],
        "task_categories": ["text-generation"],
        "size_categories": [size],
        "configs": [{"config_name": "default", "data_files": files}],
    }


def _sections(run: RunReader, contents: Contents) -> Iterator[str]:
    which = "all iterations" if contents.iteration is None else f"iteration {contents.iteration}"
    yield f"# {contents.title}"
    yield (
        f"The {contents.table} of run `{run.folder.name}` ({which}) in the form `{contents.form}`, "
        f"written by lpfloop {__version__}."
    )
    yield _table(("file", "rows"), [(contents.file, contents.rows)])
    yield "## Prompts\n\n" + _prompts(run)
    yield from _part("Models", _models(run, contents.iteration))
    yield from _part("Critics", _critics(run, contents.iteration))
    yield from _part("Rubric", _rubric(run))
    yield from _part("Rules", _rules(run, contents))
    yield "## Sources and licences\n\n" + _sources(run, contents)
    yield "## Lineage\n\n" + _lineage(run, contents)


def _part(title: str, body: str) -> Iterator[str]:
    if body:
        yield f"## {title}\n\n{body}"


def _count_rows(frame: pl.LazyFrame, *names: str) -> list[tuple[Any, ...]]:
    counted = (
        frame.group_by(*names)
        .len("rows")
        .sort("rows", *names, descending=[True, *[False] * len(names)])
    )
    return counted.head(LISTED).collect().rows()


def _prompts(run: RunReader) -> str:
    return _table(("task", "split", "prompts"), _count_rows(run.scan("prompts"), "task", "split"))


def _models(run: RunReader, iteration: int | None) -> str:
    candidates = run.scan("candidates", iteration=iteration)
    made = _count_rows(candidates, "kind", "model", "policy")
    rewards = _count_rows(run.scan("rewards", iteration=iteration), "reward_model")
    parts = [_table(("kind", "model", "checkpoint or source", "candidates"), made)] if made else []
    parts += [_table(("reward model", "rewards"), rewards)] if rewards else []
    return "\n\n".join(parts)


def _critics(run: RunReader, iteration: int | None) -> str:
    critiques = run.scan("critiques", iteration=iteration)
    said = _count_rows(critiques, "critic", "status")
    if not said:
        return ""
    rated = (
        critiques.select("aspects")
        .explode("aspects")
        .unnest("aspects")
        .group_by("name")
        .agg(
            *[(pl.col("rating") == level).sum().alias(str(level)) for level in (-1, 0, 1)],
            unread=pl.col("rating").is_null().sum(),
        )
        .drop_nulls("name")
        .sort("name")
        .collect()
        .rows()
    )
    header = ("aspect", "-1 failure", "0 moderate", "1 success", "unread")
    return "\n\n".join([_table(("critic", "status", "critiques"), said), _table(header, rated)])


def _rubric(run: RunReader) -> str:
    config = json.loads(run.journal.meta("config") or "{}")
    name = config.get("critic", {}).get("aspects")
    if not name:
        return ""
    try:
        aspects = load_aspects(name)
    except ConfigError as error:
        return f"The aspects are those of `{name}`, which cannot be read any more: {error}"
    rows = [aspect.texts for aspect in aspects]
    return _table(("aspect", "criteria", "-1", "0", "1"), rows)


def _rules(run: RunReader, contents: Contents) -> str:
    made = [
        (table, *found)
        for table in ("pairs", "demonstrations", "unpaired_answers")
        for found in _count_rows(run.scan(table, iteration=contents.iteration), "rule")
    ]
    recipe = json.loads(run.journal.meta("config") or "{}").get("recipe")
    said = f"\n\nRecipe: `{json.dumps(recipe)}`" if recipe else ""
    return _table(("table", "rule", "rows"), made) + said if made else ""


def _sources(run: RunReader, contents: Contents) -> str:
    sources = _count_rows(run.scan("prompts"), "source")
    licence = contents.license or (
        "not stated; it depends on the sources and on the models that answered. State it with "
        "`--license`"
    )
    return f"{_table(('source', 'prompts'), sources)}\n\nLicence: {licence}."


def _lineage(run: RunReader, contents: Contents) -> str:
    if contents.lineage is not None:
        return f"```json\n{json.dumps(contents.lineage, indent=1)}\n```"
    rows = sum(part.rows for part in run.journal.parts())
    if rows <= HASHED_ROWS:
        return f"Digest of the run: `{run_digest(run.folder)}`."
    return f"`lpfloop lake digest {run.folder.name}` prints the digest of the run."


def _table(header: Sequence[str], rows: Any) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(_cell(value) for value in line) + " |" for line in lines)


def _cell(value: object) -> str:
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return " ".join(text.split()).replace("|", "\\|")
