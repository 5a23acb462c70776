"""The report of a judge check: the check itself, its tables, and a JSON document."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ...stores.keys import Json
from ..data.files import InputError
from ..data.sanitize import one_line
from ..lake.statistics.clustered_estimates import Estimate
from .judge_check import ALL, Checked, Settings, check
from .judgment_sources import JudgmentReading, judgments_of
from .judgments import Judgments, collect
from .kappas import SHARED_PAIRS, AnnotatorKappa, annotator_kappas

NAME = 40
TABLES = (
    {"agreement": "agree", "decided": "no ties", "held_out": "held out"},
    {"person": "a person", "cohen": "kappa", "fleiss": "Fleiss"},
    {"second": "second", "second_cohen": "kappa"},
    {"win": "wins", "tie": "ties", "lose": "loses"},
    {"bias": "bias", "variance": "variance"},
    {"longer": "longer", "lists": "lists", "first_shown": "shown first"},
    {"both_orders": "both orders", "repeats": "repeats"},
)
"""The measures of each table with their headings: few enough for a narrow terminal."""
BOUNDS = "agree if read"
"""The heading of the agreement if all unread replies were wrong, and if all were right."""
KAPPAS = frozenset({"cohen", "fleiss", "second_cohen"})
MOST_TWOS = 30
"""The most pairs of annotators that the table has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReport:
    """The complete results of a check; `twos` is None if it was not requested."""

    judgments: Judgments
    settings: Settings
    checked: Sequence[Checked]
    by: str | None = None
    """The field that names the task types."""
    twos: Sequence[AnnotatorKappa] | None = None

    @property
    def overall(self) -> list[Checked]:
        """The measures on all pairs."""
        return [each for each in self.checked if each.task == ALL]


def judge_report(
    sources: Sequence[str],
    lake: Path,
    reading: JudgmentReading,
    settings: Settings,
    *,
    kappas: bool = False,
) -> JudgeReport:
    """Check the judges of files and runs.

    Raises:
        InputError: if the sources hold no judgments of two outputs, or not the field of `by`.
    """
    judgments = collect(judgments_of(sources, lake, reading))
    if not len(judgments.instructions):
        raise InputError("no judgments of two different outputs in: " + ", ".join(sources))
    if reading.by is not None and not any(judgments.tasks):
        raise InputError(f"--by {reading.by}: no judgment has a field of this name")
    return JudgeReport(
        judgments=judgments,
        settings=settings,
        checked=check(judgments, settings),
        by=reading.by,
        twos=annotator_kappas(judgments) if kappas else None,
    )


def document(report: JudgeReport) -> Json:
    """Return the whole check as a JSON document."""
    judgments = report.judgments
    found: dict[str, Json] = {
        "pairs": len(judgments.instructions),
        "instructions": int(judgments.instructions.max()) + 1,
        "settings": asdict(report.settings),
        "annotators": [asdict(each) for each in report.checked],
    }
    if report.by is not None:
        found["by"] = {"field": report.by, "pairs_without": judgments.tasks.count(None)}
    if report.twos is not None:
        found["kappas"] = [asdict(each) for each in report.twos]
    return found


def print_report(report: JudgeReport) -> None:
    """Print how many pairs there are, and the measures in percent with their intervals."""
    judgments, checked = report.judgments, report.checked
    pairs, instructions = len(judgments.instructions), int(judgments.instructions.max()) + 1
    _say(f"{pairs:,} pairs, {instructions:,} instructions")
    _say("percent, and kappas from -1 to 1 [95 % interval, by instruction]")
    for number, columns in enumerate(TABLES):
        there = {
            name: heading
            for name, heading in columns.items()
            if any(getattr(each, name) for each in checked)
        }
        if there or not number:
            Console().print(_table(report, there, counts=not number))
    _print_prices(report.overall)
    if report.by is not None and (without := judgments.tasks.count(None)):
        _say(f"{without:,} pairs have no {report.by!r}, or several; they count under {ALL!r} alone")
    if report.twos is not None:
        _print_twos(report.twos)


def _say(text: str) -> None:
    Console(soft_wrap=True).print(escape(text), highlight=False)


def _table(report: JudgeReport, columns: Mapping[str, str], *, counts: bool) -> Table:
    names = (*(("task",) if report.by is not None else ()), "annotator")
    lost = any(each.unread for each in report.checked)
    numbers = (*(("verdicts",) if counts else ()), *(("unread",) if lost else ()))
    if counts and any(each.worst is not None for each in report.checked):
        numbers += (BOUNDS,)
    table = _table_of(*names, *numbers, *columns.values(), names=len(names))
    for each in report.checked:
        figures = [getattr(each, name) for name in columns]
        if (counts and each.task == ALL) or any(figures):
            cells = {
                "task": _name(each.task),
                "annotator": _name(each.name),
                "verdicts": f"{each.verdicts:,}",
                "unread": _unread(each),
                BOUNDS: _bounds(each),
            }
            table.add_row(*(cells[name] for name in (*names, *numbers)), *_cells(columns, figures))
    return table


def _print_prices(overall: Sequence[Checked]) -> None:
    """Print the cost of verdicts, if known."""
    priced = [(each, each.price) for each in overall if each.price is not None]
    if priced:
        table = _table_of("annotator", "price of 1,000 verdicts")
        for each, price in priced:
            table.add_row(_name(each.name), f"{1000 * price:.2f}")
        Console().print(table)


def _print_twos(twos: Sequence[AnnotatorKappa]) -> None:
    if not twos:
        _say(f"no two annotators judged {SHARED_PAIRS} pairs in common, as a kappa of two needs")
        return
    table = _table_of("annotator", "annotator", "pairs", "agree", "kappa", names=2)
    for each in twos[:MOST_TWOS]:
        found = (interval_text(each.agreement), kappa_text(each.cohen))
        table.add_row(_name(each.first), _name(each.second), f"{each.pairs:,}", *found)
    Console().print(table)
    if len(twos) > MOST_TWOS:
        _say(f"and {len(twos) - MOST_TWOS:,} more pairs of annotators: --json has all")


def _table_of(*headings: str, names: int = 1) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for place, heading in enumerate(headings):
        if place < names:
            table.add_column(heading, overflow="fold")
        else:
            table.add_column(heading, justify="right", no_wrap=True)
    return table


def _name(name: str) -> str:
    return escape(one_line(name, limit=NAME))


def _unread(each: Checked) -> str:
    return f"{each.unread:,} ({each.unread_share:.1%})" if each.unread else ""


def _bounds(each: Checked) -> str:
    if each.worst is None or each.best is None:
        return ""
    return f"{100 * each.worst:.1f} to {100 * each.best:.1f}"


def _cells(columns: Iterable[str], figures: Sequence[Estimate | None]) -> list[str]:
    return [
        kappa_text(found) if name in KAPPAS else interval_text(found)
        for name, found in zip(columns, figures, strict=True)
    ]


def interval_text(estimate: Estimate | None) -> str:
    """Return a measure in percent, with its interval if it has one."""
    if estimate is None:
        return "-"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.0%}".rstrip("%")
    return escape(
        f"{100 * estimate.value:.0f} [{100 * estimate.low:.0f}, {100 * estimate.high:.0f}]"
    )


def kappa_text(estimate: Estimate | None) -> str:
    """Return a kappa with its interval if it has one."""
    if estimate is None:
        return "-"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.2f}"
    return escape(f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]")
