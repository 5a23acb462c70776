"""`lpfloop compare`: runs side by side, in the form of AlpacaFarm's Table 2."""

from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Annotated

import typer

from ...stores.address import DEFAULT_LAKE
from ..lake.query.forms import FormError
from .common import Lake, OneTask, Replace
from .output import Output, RowOutput
from .word_completion import run_names


def compare(
    names: Annotated[
        list[str],
        typer.Argument(
            help="Names of runs; RUN:M_1@20 picks a checkpoint, RUN:best-of-4 a best-of-n result.",
            metavar="RUN...",
            autocompletion=run_names,
        ),
    ],
    *,
    lake: Lake = DEFAULT_LAKE,
    by_method: Annotated[
        bool,
        typer.Option(
            "--by-method", help="Average over the runs of each method, such as its seeds."
        ),
    ] = False,
    against: Annotated[
        str | None,
        typer.Option(help="Also show the lead over this: a run or a method, prompt by prompt."),
    ] = None,
    beside: Annotated[
        str | None,
        typer.Option(
            "--rank-with",
            metavar="RUN,RUN",
            help="Instead rank methods here and in these runs, with Spearman's correlation.",
        ),
    ] = None,
    metric: Annotated[
        str, typer.Option(help="Metric to rank by with --rank-with, such as verified.")
    ] = "win_rate",
    task: OneTask = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write a page with their plots: one HTML file."),
    ] = None,
    policy_tokens: Annotated[
        int | None,
        typer.Option(
            "--policy-tokens",
            min=1,
            help="Compare methods: each run's last policy within this many generated tokens.",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", help="Also draw a plot into this .svg, .png or .pdf file."),
    ] = None,
    force: Replace = False,
    out: RowOutput,
) -> None:
    """Compare the results and costs of runs."""
    from .equal_commands import show_equal

    if policy_tokens is not None:
        why = "does not apply to methods at equal tokens: leave it out with --policy-tokens"
        _refuse(why, beside=beside, by_method=by_method, against=against, task=task, report=report)
        show_equal(lake, names, policy_tokens, plot=plot, force=force, as_json=out.as_json)
        return
    if plot is not None:
        raise FormError("--plot draws score against tokens: add --policy-tokens, or --report")
    if beside is not None:
        why = "does not apply to rankings of methods: leave it out with --rank-with"
        _refuse(why, by_method=by_method, against=against, report=report)
        _write_rankings(lake, names, beside, metric, task=task, out=out)
        return
    if report is not None:
        _write_report(lake, names, report, together=by_method, task=task, force=force)
    write_comparison(lake, names, together=by_method, against=against, task=task, out=out)


def _refuse(why: str, **options: object) -> None:
    """Refuse options that another use of the command does not have.

    Raises:
        FormError: naming the option.
    """
    for option, value in options.items():
        if value:
            name = {"beside": "rank-with"}.get(option, option.replace("_", "-"))
            raise FormError(f"--{name} {why}")


def _write_rankings(
    lake: Path,
    names: Sequence[str],
    beside: str,
    metric: str,
    *,
    task: str | None,
    out: Output,
) -> None:
    """Write the methods of two groups of runs with their ranks, and how alike these are.

    Raises:
        NoSuchRunError: if a run does not exist, or is unmeasured.
        FormError: if there are too few methods to rank.
    """
    from rich.console import Console

    from ..data.text_wrap import print_wrapped
    from ..evaluation.ranking_agreement import ranking_agreement

    others = [name.strip() for name in beside.split(",") if name.strip()]
    found = ranking_agreement(lake, names, others, metric=metric, task=task)
    rows = found.frame.drop("spearman") if out.is_table else found.frame
    out.rows(rows)
    if out.is_table:
        console = Console()
        print_wrapped(
            console,
            f"Spearman's rank correlation by {metric}: {found.rho:.2f} ({len(rows)} methods)",
        )
        for remark in found.remarks:
            print_wrapped(console, remark)


def _write_report(
    lake: Path, names: Sequence[str], path: Path, *, together: bool, task: str | None, force: bool
) -> None:
    """Write the page of a comparison.

    Raises:
        NoSuchRunError: if a run does not exist, or is unmeasured.
        FormError: if the runs share no comparable figure, or Matplotlib is missing.
        TargetError: if the page cannot be written.
    """
    from ..evaluation.compare_runs import by_method, results
    from ..evaluation.plots import require_libraries
    from ..lake.query.runs import open_run
    from ..report.comparison import comparison_report
    from ..report.write_report import check_places, output_report

    require_libraries("a report", "matplotlib", "jinja2")
    check_places(path, None, force=force)
    found = results(lake, names, task=task)
    with ExitStack() as opened:
        own = dict.fromkeys(name.partition(":")[0] for name in names)
        runs = [opened.enter_context(closing(open_run(lake, name))) for name in own]
        made = comparison_report(runs, by_method(found) if together else found, together=together)
    output_report(made, path, force=force)


def write_comparison(
    lake: Path,
    names: Sequence[str],
    *,
    together: bool,
    against: str | None = None,
    task: str | None = None,
    out: Output | None = None,
) -> None:
    """Write the results of runs as a table, or as one row each in the formats of `out`.

    Raises:
        NoSuchRunError: if a run does not exist, or is unmeasured.
        FormError: if `against` is not in the comparison.
    """
    from rich.console import Console

    from ..data.text_wrap import print_wrapped
    from ..evaluation.compare_runs import INITIAL
    from ..evaluation.comparison import (
        compared_runs,
        comparison_remarks,
        errors_over,
        figure_lines,
        lead_levels,
        result_name,
        result_named,
        results_by_part,
        spent_lines,
    )
    from ..evaluation.figure_tables import print_figures

    compared = compared_runs(lake, names, together=together, against=against, task=task)
    if out is not None and not out.is_table:
        out.rows(compared.frame)
        return
    console, found = Console(), compared.found
    alone = sum(result.method == INITIAL for result in found) == 1
    against = against or (INITIAL if alone else None)
    parts = {"": found}
    if task is None:
        parts |= results_by_part(lake, names, together=together)
    lines = [
        line
        for part, of in parts.items()
        for line in figure_lines(found, of, part=part, against=against)
    ]
    lines += spent_lines(found)
    lead = "" if against is None else f", with the lead over {against}, paired by prompt"
    over = errors_over(found)
    print_wrapped(console, f"Held-out prompts (test): mean ± standard error over {over}{lead}")
    print_figures(
        console,
        [("figure", [label for label, _ in lines])],
        [
            (result_name(result, together=together), [cells[n] for _, cells in lines])
            for n, result in enumerate(found)
        ],
    )
    rival = None if against is None else result_named(against, found)
    levels = None if rival is None else lead_levels(found, rival)
    for remark in (*([] if levels is None else [levels]), *comparison_remarks(found)):
        print_wrapped(console, remark)
