"""`lpfloop verdict`: is one model better than another? Better, not better, or undecided."""

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ...stores.address import DEFAULT_LAKE
from ..lake.query.forms import FormError
from .common import Exit, chosen_run
from .options import DocumentOutput, Lake, Output

if TYPE_CHECKING:
    from ..evaluation.recorded_results import PairedPrompts, ResultFields
    from ..evaluation.recorded_verdict import RecordedVerdict
    from ..lake.statistics.decisions import Decision


def verdict(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Name of the run; default: the latest, unless files are given.", metavar="RUN"
        ),
    ] = None,
    *,
    a: Annotated[
        Path | None, typer.Option("--a", help="Results of model a, one row for each prompt.")
    ] = None,
    b: Annotated[
        Path | None, typer.Option("--b", help="Results of model b on the same prompts.")
    ] = None,
    preferences: Annotated[
        Path | None,
        typer.Option(help="File of preferences between a (output_1) and b (output_2)."),
    ] = None,
    value: Annotated[
        list[str] | None,
        typer.Option(
            help="Field with the results (OUTER.INNER if nested); give it twice if b has another."
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Field that identifies the prompt; default: its id or text.")
    ] = None,
    cluster: Annotated[
        str, typer.Option(help="Field that groups prompts whose results depend on each other.")
    ] = "cluster",
    error_rate: Annotated[
        float, typer.Option(help="How often a b that is not better may be called better.")
    ] = 0.05,
    look: Annotated[
        int | None,
        typer.Option(min=1, help="Which of several comparisons this is; 1: the first."),
    ] = None,
    worthwhile: Annotated[
        float, typer.Option(min=0, help="The smallest gain worth having.")
    ] = 0.01,
    require: Annotated[
        Literal["better"] | None, typer.Option(help="Exit with code 1 unless b is this.")
    ] = None,
    lake: Lake = DEFAULT_LAKE,
    out: DocumentOutput,
) -> None:
    """Decide whether a model is better than another.

    For a run: prints its verdicts. For files: compares b with a, prompt by prompt, at a stated
    error rate.
    """
    from ..evaluation.recorded_results import ResultFields
    from ..evaluation.recorded_verdict import Standard, verdict_on

    files = (a, b, preferences)
    if name is not None and any(files):
        raise FormError(f"verdict {name}: give the name of a run, or files, not both")
    if name is not None or not any(files):
        _of_run(lake, chosen_run(lake, name, tell=True), out)
        return
    if not 0 < error_rate < 0.5:  # noqa: PLR2004 -- as configs/schema.py
        raise FormError(f"--error-rate {error_rate:g}: must be above 0 and below 0.5")
    first, second, *more = (*(value or ()), None, None)
    if any(more):
        raise FormError("--value: give it once, or twice if b has another field than a")
    fields = ResultFields(key=key, value=first, cluster=cluster)
    standard = Standard(error_rate=error_rate, look=look, worthwhile=worthwhile)
    found = verdict_on(_pair_prompts(a, b, preferences, fields, second), standard)
    out.document(found.document, lambda: _print(file_lines(found)))
    if require is not None and found.decision.answer != require:
        raise typer.Exit(Exit.FAULT)


def _pair_prompts(
    a: Path | None,
    b: Path | None,
    preferences: Path | None,
    fields: "ResultFields",
    other_value: str | None,
) -> "PairedPrompts":
    from ..evaluation.recorded_results import of_preferences, of_two

    if preferences is not None:
        if a is not None or b is not None or other_value is not None:
            raise FormError("verdict: --preferences holds both models; leave out --a and --b")
        return of_preferences(preferences, fields)
    if a is None or b is None:
        raise FormError(
            "verdict: needs two files of results, --a FILE --b FILE, or one of preferences, "
            "--preferences FILE, or the name of a run"
        )
    return of_two(a, b, fields, other_value)


def _of_run(lake: Path, name: str, out: Output) -> None:
    """Write the stored verdicts of a run.

    Raises:
        NoSuchRunError: if the run does not exist, or lacks verdicts.
    """
    from ..lake.query.model_names import checkpoints
    from ..lake.query.run_verdicts import run_verdict, verdict_lines
    from ..lake.query.runs import open_run

    with closing(open_run(lake, name)) as run:
        found = run_verdict(run, checkpoints(run))
    out.document(found.as_json(), lambda: _print(verdict_lines(found)))


def _print(lines: Iterable[str]) -> None:
    from rich.console import Console

    from ..data.text import one_line, print_wrapped
    from .status_text import LINE

    for line in lines:
        print_wrapped(Console(), one_line(line, limit=LINE))


def file_lines(found: "RecordedVerdict") -> list[str]:
    """Return a verdict in lines for people."""
    all_told = found.decision
    lines = [
        _answer(all_told),
        f"  {found.figure}: {_numbers(all_told, found.figure)}",
        f"  {_prompts(all_told)}",
    ]
    if found.lengths is not None:
        lines.append("  mean length: {:.0f} → {:.0f} characters".format(*found.lengths))
    if (rate := found.controlled) is not None:
        wins, error = 100 * rate.win_rate, 100 * rate.standard_error
        lines.append(f"  b at equal lengths: wins {wins:.1f} % ± {error:.1f}")
    lines += [f"  note: {remark}" for remark in found.remarks]
    lines.append(f"  one-sided level {found.level:.2%} per bound")
    return lines


def _answer(decision: "Decision") -> str:
    from ..lake.statistics.decisions import too_few

    if decision.answer == "better":
        return "better: b is better than a"
    if decision.answer == "not better":
        small = (decision.low or 0) > 0
        return f"not better: {'the gain is too small' if small else 'b is not better than a'}"
    if decision.low is None:
        return f"undecided: {too_few(decision.n, decision.clusters)}"
    if decision.needed is None:
        return "undecided: it is not known how many prompts like these would decide"
    return f"undecided: about {decision.needed:,} prompts like these would decide"


def _numbers(decision: "Decision", figure: str) -> str:
    """Return the change with its bounds: win-rates in percent, others in their usual unit."""
    from ..lake.imports.compared_rows import PREFERENCE

    factor, unit, decimals = (100, " %", 1) if figure == PREFERENCE else (1, "", 3)

    def as_text(value: float, sign: str = "") -> str:
        return f"{factor * value:{sign}.{decimals}f}"

    before, after = as_text(decision.before), as_text(decision.after)
    change = f"{before} → {after}{unit}, {as_text(decision.difference, '+')}"
    if decision.low is None or decision.high is None:
        return change
    return f"{change} [{as_text(decision.low, '+')}, {as_text(decision.high, '+')}]"


def _prompts(decision: "Decision") -> str:
    clusters = "" if decision.clusters == decision.n else f" in {decision.clusters} clusters"
    return f"{decision.n} prompts{clusters}: {decision.gained:.1%} gained, {decision.lost:.1%} lost"
