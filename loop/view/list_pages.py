"""The lists of a run's prompts, candidates, critiques and pairs, with filters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...stores.index import index_folder, is_there
from ...stores.lake import RunReader
from ...stores.records import CandidateKind
from ..lake.trace.word_diff import Span, word_diff
from .drawing import address
from .page_rows import choices, page_rows
from .row_sources import Listed, unindexed
from .viewing import Viewing
from .wanted import Wanted, wanted

LISTED: Sequence[Listed] = get_args(Listed)
FORMS: Mapping[Listed, Sequence[str]] = {
    "prompts": ("task", "family", "split", "flip", "before", "after"),
    "candidates": (
        *("iteration", "kind", "task", "family", "split", "aspect", "rating", "unscored"),
        *("min_reward", "max_reward", "flip", "before", "after", "sort"),
    ),
    "critiques": (
        *("iteration", "task", "family", "split", "aspect", "rating", "unscored"),
        *("flip", "before", "after"),
    ),
    "pairs": (
        *("iteration", "rule", "task", "family", "split"),
        *("flip", "before", "after", "sort"),
    ),
}
"""The filters of each list."""
SORTS: Mapping[Listed, Sequence[str]] = {
    "candidates": ("-reward", "reward", "-length", "length"),
    "pairs": ("-margin", "margin"),
}
CUT = 400
"""How many characters of a text a list shows."""
AROUND = 40
"""How many characters before and after a change are shown."""


@dataclass(frozen=True, slots=True)
class ListPages:
    """The lists of a run."""

    viewing: Viewing

    def routes(self) -> list[Route]:
        """Return their addresses."""
        return [Route(f"/runs/{{run}}/{table}", self.of(table), name=table) for table in LISTED]

    def of(self, table: Listed) -> Any:
        """Return what answers for one table."""

        def answer(request: Request) -> Response:
            asked = wanted(request.query_params)
            with self.viewing.run(request) as run:
                return self._page(run, table, asked)

        return answer

    def _page(self, run: RunReader, table: Listed, asked: Wanted) -> Response:
        found = page_rows(self.viewing.lake, run, table, asked)
        name = run.folder.name
        searched = asked.words is not None
        here = ("runs", name, table)
        following = None if found.next is None else address(*here, **asked.given, start=found.next)
        return self.viewing.page(
            f"{table}.html",
            run=name,
            table=table,
            asked=asked,
            given=asked.given,
            fields=FORMS[table],
            sorts=SORTS.get(table, ()),
            kinds=get_args(CandidateKind),
            choices=self._choices(run),
            indexed=is_there(index_folder(self.viewing.lake)),
            found=found,
            behind=unindexed(self.viewing.lake, run, table) if searched else 0,
            rows=[_with_changes(row) for row in found.rows] if table == "pairs" else found.rows,
            first=address(*here, **asked.given),
            following=following,
            cut=CUT,
        )

    def _choices(self, run: RunReader) -> Mapping[str, Sequence[str]]:
        """Return the words that a filter may take, found anew only when the run has changed."""
        name = run.folder.name
        return self.viewing.kept(
            f"choices {name}", self.viewing.version(name), lambda: choices(run)
        )


def _with_changes(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pair with its chosen answer as changes of the rejected one."""
    chosen, rejected = (_text(row[side]) for side in ("chosen", "rejected"))
    return {**row, "spans": shortened(word_diff(rejected, chosen))}


def _text(messages: Sequence[Mapping[str, str]]) -> str:
    return "\n".join(message["content"] for message in messages)


def shortened(spans: Sequence[Span], most: int = CUT) -> list[Span]:
    """Return the spans around what differs; of a long stretch that is the same, only the ends."""
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
