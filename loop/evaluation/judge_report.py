"""The report of a judge check: tables and a JSON document."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ...stores.keys import Json
from ..data.sanitize import one_line
from ..lake.statistics.bootstrap import Estimate
from .judge_agreement import ALL, Agreement
from .judge_check import Checked, JudgeFigure, Settings
from .judgments import Judgments
from .kappas import SHARED_PAIRS, AnnotatorKappa

NAME = 40
TABLES = (
    {"agreement": "agree", "decided": "no ties", "held_out": "held out"},
    {"cohen": "kappa", "fleiss": "Fleiss"},
    {"bias": "bias", "variance": "variance"},
    {"longer": "longer", "lists": "lists", "first_shown": "shown first"},
    {"both_orders": "both orders", "repeats": "repeats"},
)
"""The measures of each table with their headings: few enough for a narrow terminal."""
AGREEMENTS = (
    {"person": "a person", "majority": "majority"},
    {"cohen": "kappa", "fleiss": "Fleiss"},
    {"second": "second", "second_cohen": "kappa"},
    {"win": "wins", "tie": "ties", "lose": "loses"},
)
"""The same for agreement, with a second judge, and for wins of a model's outputs."""
BOUNDED = {"agreement": "agree", "decided": "no ties", "held_out": "held out"}
"""The measures with bounds if replies could not be read, and their headings."""
KAPPAS = frozenset({"cohen", "fleiss", "second_cohen"})
MOST_TWOS = 30
"""The most pairs of annotators that the table has."""
NAMED_PAIRS = 3
"""The most pairs with several task types that are listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReport:
    """The complete results of a check; parts that were not requested are empty."""

    judgments: Judgments
    settings: Settings
    checked: Sequence[Checked]
    agreed: Sequence[Agreement] = ()
    by: str | None = None
    """The field that names the task types."""
    twos: Sequence[AnnotatorKappa] | None = None


def document(report: JudgeReport) -> Json:
    """Return the whole check as a JSON document, with the other requested parts."""
    judgments = report.judgments
    found: dict[str, Json] = {
        "pairs": len(judgments.instructions),
        "instructions": int(judgments.instructions.max()) + 1,
        "settings": asdict(report.settings),
        "annotators": [asdict(each) for each in report.checked],
    }
    if report.agreed:
        found["agreements"] = [asdict(each) for each in report.agreed]
    if report.by is not None:
        found["by"] = {
            "field": report.by,
            "pairs_without": _without(judgments),
            "disputed": [asdict(each) for each in judgments.disputed],
        }
    if report.twos is not None:
        found["kappas"] = [asdict(each) for each in report.twos]
    return found


def print_report(report: JudgeReport) -> None:
    """Print how many pairs there are, and the measures in percent with their intervals."""
    judgments, checked = report.judgments, report.checked
    pairs, instructions = len(judgments.instructions), int(judgments.instructions.max()) + 1
    _say(f"{pairs:,} pairs, {instructions:,} instructions")
    _say("percent, and kappas from -1 to 1 [95 % interval, resampled by instruction]")
    for number, columns in enumerate(TABLES):
        there = _there(checked, columns)
        if there or not number:
            Console().print(_table(checked, there, counts=not number))
        if not number and any(each.unread for each in checked):
            _print_bounds(checked)
    _print_prices(checked)
    _print_groups(report)
    if report.twos is not None:
        _print_twos(report.twos)


def _say(text: str) -> None:
    Console(soft_wrap=True).print(escape(text), highlight=False)


def _print_prices(checked: Sequence[Checked]) -> None:
    """Print the cost of verdicts, if known."""
    priced = [(each, each.price) for each in checked if each.price is not None]
    if priced:
        table = _headed("annotator", "price of 1,000 verdicts")
        for each, price in priced:
            table.add_row(_name(each.name), f"{1000 * price:.2f}")
        Console().print(table)


def _print_bounds(checked: Sequence[Checked]) -> None:
    """Print the bounds of the agreements, for any content of the unread replies."""
    unread = [each for each in checked if each.unread]
    columns = {
        name: heading
        for name, heading in BOUNDED.items()
        if any((found := getattr(each, name)) and found.worst is not None for each in unread)
    }
    if columns:
        _say("if all unread replies were wrong, and if all were right")
        table = _headed("annotator", "unread", *columns.values())
        for each in unread:
            cells = (bounds_text(getattr(each, name)) for name in columns)
            table.add_row(_name(each.name), _unread(each.unread, each.unread_share), *cells)
        Console().print(table)


def _print_groups(report: JudgeReport) -> None:
    """Print agreement in wins, ties and losses, by task type and annotator, in percent."""
    for columns in AGREEMENTS:
        if there := _there(report.agreed, columns):
            Console().print(_agreements_table(report.agreed, there))
    if report.by is None:
        return
    if without := _without(report.judgments):
        _say(f"{without:,} pairs have no {report.by!r}; they count under {ALL!r} alone")
    if disputed := report.judgments.disputed:
        named = "; ".join(
            f"{one_line(each.instruction, limit=NAME)!r}: {', '.join(each.tasks)}"
            for each in disputed[:NAMED_PAIRS]
        )
        more = "; ..." if len(disputed) > NAMED_PAIRS else ""
        _say(
            f"{len(disputed):,} pairs have rows that disagree on {report.by!r}; they count under "
            f"{ALL!r} alone ({named}{more})"
        )


def _without(judgments: Judgments) -> int:
    """Return how many pairs lack a task type in every row."""
    return sum(task is None for task in judgments.tasks) - len(judgments.disputed)


def _print_twos(twos: Sequence[AnnotatorKappa]) -> None:
    if not twos:
        _say(f"no two annotators judged {SHARED_PAIRS} pairs in common, as a kappa of two needs")
        return
    table = _headed("annotator", "annotator", "pairs", "agree", "kappa", names=2)
    for each in twos[:MOST_TWOS]:
        found = (interval_text(each.agreement), kappa_text(each.cohen))
        table.add_row(_name(each.first), _name(each.second), f"{each.pairs:,}", *found)
    Console().print(table)
    if len(twos) > MOST_TWOS:
        _say(f"and {len(twos) - MOST_TWOS:,} more pairs of annotators: --json has all")


def _there(rows: Sequence[Checked | Agreement], columns: Mapping[str, str]) -> dict[str, str]:
    """Return the columns that have a value in any row."""
    return {
        name: heading
        for name, heading in columns.items()
        if any(getattr(each, name) for each in rows)
    }


def _headed(*headings: str, names: int = 1) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in headings[:names]:
        table.add_column(heading, overflow="fold")
    for heading in headings[names:]:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _agreements_table(agreed: Sequence[Agreement], columns: Mapping[str, str]) -> Table:
    rows = [
        (each, [getattr(each, name) for name in columns])
        for each in agreed
        if any(getattr(each, name) for name in columns)
    ]
    lost = any(found.unread for _, figures in rows for found in figures if found)
    table = _headed("task", "annotator", *(("unread",) if lost else ()), *columns.values(), names=2)
    for each, figures in rows:
        most = max((found for found in figures if found), key=lambda found: found.unread)
        unread = (_unread(most.unread, most.unread_share),) if lost else ()
        table.add_row(_name(each.task), _name(each.name), *unread, *_cells(columns, figures))
    return table


def _table(checked: Sequence[Checked], columns: Mapping[str, str], *, counts: bool) -> Table:
    lost = any(each.unread for each in checked)
    ahead = ("verdicts",) if counts else ()
    table = _headed("annotator", *ahead, *(("unread",) if lost else ()), *columns.values())
    for each in checked:
        figures = [getattr(each, name) for name in columns]
        if counts or any(figures):
            numbers = (f"{each.verdicts:,}",) if counts else ()
            unread = (_unread(each.unread, each.unread_share),) if lost else ()
            table.add_row(_name(each.name), *numbers, *unread, *_cells(columns, figures))
    return table


def _name(name: str) -> str:
    return escape(one_line(name, limit=NAME))


def _unread(number: int, part: float) -> str:
    return f"{number:,} ({part:.1%})" if number else ""


def _cells(columns: Mapping[str, str], figures: Sequence[Estimate | None]) -> list[str]:
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


def bounds_text(found: JudgeFigure | None) -> str:
    """Return the bounds of an agreement in percent."""
    if found is None or found.worst is None or found.best is None:
        return "-"
    return f"{100 * found.worst:.1f} to {100 * found.best:.1f}"
