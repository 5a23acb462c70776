"""The lists of a run's prompts, candidates, critiques and pairs, with filters, page by page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from starlette.requests import Request
from starlette.responses import Response

from ...stores.lake import RunReader
from ...stores.records import CandidateKind
from ..data.judged_candidates import critique_place
from ..lake.query.duckdb_rows import among
from ..lake.query.filters import TABLES, RowTable
from ..lake.query.tables import FEW, ListError, check, rows, words
from ..lake.trace.page import Span, word_diff
from .viewing import Viewing, address, number

SHOWN: Mapping[str, Sequence[str]] = {
    "prompts": ("prompt_id", "task", "family", "split", "source", "messages"),
    "candidates": (
        *("candidate_id", "prompt_id", "iteration", "kind", "text", "completion_tokens"),
        *("finish_reason", "reward"),
    ),
    "critiques": (
        *("critique_id", "prompt_id", "iteration", "critic", "aspects", "status", "text"),
    ),
    "pairs": (
        *("pair_id", "prompt_id", "iteration", "rule", "chosen", "rejected"),
        *("chosen_reward", "rejected_reward"),
    ),
}
"""The lists, with the columns that their pages show."""
SORTS: Mapping[str, Sequence[str]] = {
    "candidates": ("-reward", "reward", "-length", "length"),
    "pairs": ("-margin", "margin"),
}
WORDS = ("task", "family", "split", "aspect", "rule")
"""The filters whose values a page suggests."""
PAGE = 25
LOOKED_AT, SUGGESTED = 50_000, 300
"""Values are looked for in so many rows; at most so many are suggested."""
CUT = 400
"""How many characters of a text a list shows."""
AROUND = 40
"""How many characters before and after a change are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageQuery:
    """The query of an address. `given` has its fields as they are written there."""

    filters: Mapping[str, str | float] = field(default_factory=dict[str, str | float])
    iteration: int | None = None
    sort: str | None = None
    start: int = 0
    given: Mapping[str, str] = field(default_factory=dict[str, str])


def page_query(query: Mapping[str, str], table: RowTable) -> PageQuery:
    """Read the query of an address; fields that the table's list does not know are left out.

    Raises:
        ListError: if a value is not of the right type.
    """
    known = {"iteration", "sort", *table.filters}
    given = {name: query[name].strip() for name in sorted(known & {*query})}
    given = {name: value for name, value in given.items() if value}
    return PageQuery(
        filters={
            name: _value(name, kind, given[name])
            for name, (kind, _) in table.filters.items()
            if name in given
        },
        iteration=number("iteration", given.get("iteration")),
        sort=given.get("sort"),
        start=max(number("start", query.get("start")) or 0, 0),
        given=given,
    )


def _value(name: str, kind: type, text: str) -> str | float:
    """Return the value of a filter."""
    if kind is bool:
        return True
    if kind is int:
        return number(name, text) or 0
    if kind is not float:
        return text
    try:
        return float(text)
    except ValueError:
        raise ListError(f"{name} {text!r} is not a number") from None


def list_page(table: str, viewing: Viewing, request: Request) -> Response:
    """Show a page of a table's rows."""
    query = page_query(request.query_params, TABLES[table])
    with viewing.run(request) as run:
        return _page(viewing, run, table, query)


def _page(viewing: Viewing, run: RunReader, table: str, query: PageQuery) -> Response:
    found = _rows(run, table, query)
    shown, more = found[:PAGE], len(found) > PAGE
    name = run.folder.name
    here = ("runs", name, table)
    start = query.start + PAGE
    return viewing.page(
        f"{table}.html",
        run=name,
        table=table,
        asked=query,
        given=query.given,
        fields=[*TABLES[table].filters, *(["iteration"] if table != "prompts" else [])],
        sorts=SORTS.get(table, ()),
        kinds=get_args(CandidateKind),
        choices=_choices(viewing, run),
        rows=_add_fields(run, table, shown),
        first=address(*here, **query.given),
        following=address(*here, **query.given, start=start) if more else None,
        cut=CUT,
    )


def _rows(run: RunReader, table: str, query: PageQuery) -> list[dict[str, Any]]:
    """Return the rows of a page and, if there are more, one more."""
    if query.sort is not None:
        check(
            "column to sort by",
            query.sort.removeprefix("-"),
            [column.removeprefix("-") for column in SORTS.get(table, ())],
        )
    frame = rows(
        run,
        table,
        query.filters,
        iteration=query.iteration if table != "prompts" else None,
        columns=SHOWN[table],
        sort=query.sort,
        limit=PAGE + 1,
        start=query.start,
    )
    return frame.collect().to_dicts()


def _choices(viewing: Viewing, run: RunReader) -> Mapping[str, Sequence[str]]:
    """Return the values that filters can have, looked up again when the run has changed."""
    name = run.folder.name
    return viewing.cached(f"choices {name}", viewing.version(name), lambda: _suggestions(run))


def _suggestions(run: RunReader) -> dict[str, list[str]]:
    """Return the values that filters can have, by the name of the filter."""
    known = {name: words(run, "pairs", name, LOOKED_AT)[:SUGGESTED] for name in WORDS}
    numbers = sorted({stage.iteration for stage in run.journal.stages()})
    return {**known, "iteration": [str(number) for number in numbers]}


def _add_fields(
    run: RunReader, table: str, shown: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Add the page's extra fields to the columns: a candidate's critique, a pair's changes."""
    if table == "pairs":
        return [{**row, "spans": _changes(row)} for row in shown]
    if table != "candidates" or not shown:
        return [*shown]
    where = [
        among(key, sorted({row[key] for row in shown})) for key in ("prompt_id", "candidate_id")
    ]
    columns = ("candidate_id", "critic", "sample", "aspects", "status")
    critiques = rows(run, "critiques", columns=columns, where=where, limit=FEW).collect().to_dicts()
    critiques.sort(key=lambda row: critique_place(row["critic"], row["sample"]))
    last = {row["candidate_id"]: row for row in critiques}
    return [{**row, "critique": last.get(row["candidate_id"])} for row in shown]


def _changes(pair: Mapping[str, Any]) -> list[Span]:
    """Return a pair's chosen answer as changes of the rejected one."""
    chosen, rejected = (
        "\n".join(message["content"] for message in pair[side]) for side in ("chosen", "rejected")
    )
    return shorten_spans(word_diff(rejected, chosen))


def shorten_spans(spans: Sequence[Span], most: int = CUT) -> list[Span]:
    """Return the spans around differences; of a long equal stretch, only the ends."""
    kept = list[Span]()
    for span in spans:
        text = span.text
        if span.kind == "same" and len(text) > AROUND * 2:
            text = f"{text[:AROUND]} … {text[-AROUND:]}"
        kept.append(Span(span.kind, text[:most]))
        most -= len(text)
        if most <= 0:
            return [*kept, Span("same", " …")]
    return kept
