"""`lpfloop compare`: runs next to each other, or methods at equal numbers of tokens."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...stores.address import DEFAULT_LAKE
from ..lake.query.forms import FormError
from .options import Lake, OneTask, Output, Plot, Replace, RowOutput, run_names
from .session import turn

if TYPE_CHECKING:
    from ...stores.keys import Json
    from ..daemon.suite import Suite
    from ..evaluation.method_outcomes import MethodOutcome
    from ..evaluation.pairwise_verdicts import PairwiseVerdict
    from ..lake.statistics.intervals import SeedMean


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
    rank_with: Annotated[
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
    plot: Plot = None,
    force: Replace = False,
    out: RowOutput,
) -> None:
    """Compare the results and costs of runs."""
    from .compare_commands import show_equal

    if policy_tokens is not None:
        why = "does not apply to methods at equal tokens: leave it out with --policy-tokens"
        _refuse(
            why, rank_with=rank_with, by_method=by_method, against=against, task=task, report=report
        )
        show_equal(lake, names, policy_tokens, out, plot=plot, force=force)
        return
    if plot is not None:
        raise FormError("--plot draws score against tokens: add --policy-tokens, or --report")
    if rank_with is not None:
        why = "does not apply to rankings of methods: leave it out with --rank-with"
        _refuse(why, by_method=by_method, against=against, report=report)
        _write_rankings(lake, names, rank_with, metric, task=task, out=out)
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
            name = option.replace("_", "-")
            raise FormError(f"--{name} {why}")


def _write_rankings(
    lake: Path,
    names: Sequence[str],
    rank_with: str,
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

    from ..data.text import print_wrapped
    from ..evaluation.ranking_agreement import ranking_agreement

    others = [name.strip() for name in rank_with.split(",") if name.strip()]
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

    from ..data.text import print_wrapped
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
    from ..lake.query.row_table import print_figures

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


def compare_recipes(suite: "Suite") -> None:
    """Work on a suite's runs, one after another, then print their comparison by recipe."""
    from ..daemon.suite import run_suite
    from ..run.terminal import say

    write_comparison(suite.lake, run_suite(suite, turn, say), together=True)


def compare_at_equal_tokens(
    suite: "Suite", recipes: str, policy_tokens: int, trials: int | None
) -> None:
    """Work on a comparison's trials and runs, then print it, and the command to draw it.

    Raises:
        ConfigError: before anything is run, if the comparison cannot be made.
    """
    from ...stores.address import in_lake
    from ..daemon.equal_tokens import EqualComparison
    from ..daemon.suite import named_recipes
    from ..recipes import RECIPES
    from ..run.terminal import say

    comparison = EqualComparison(
        suite=suite, budget=policy_tokens, trials=trials or 3, turn=turn, note=say
    )
    every = [name for name, entry in RECIPES.items() if entry.trials]
    names = comparison.run(named_recipes(recipes, every))
    show_equal(suite.lake, names, policy_tokens, Output())
    again = f"lpfloop compare {' '.join(names)} --policy-tokens {policy_tokens}"
    say(f"draw it: `{again} --plot {suite.prefix}.svg{in_lake(suite.lake)}`")


def show_equal(
    lake: Path,
    names: Sequence[str],
    budget: int,
    out: Output,
    *,
    plot: Path | None = None,
    force: bool = False,
) -> None:
    """Print runs at equal tokens by method, or as a JSON document; draw a plot if asked for.

    Raises:
        NoSuchRunError: if a run does not exist.
        ConfigError: if nothing was measured under a seed that all methods share.
        FormError, TargetError: if the plot cannot be made.
    """
    from ...configs.schema import ConfigError
    from ..evaluation.method_outcomes import (
        method_outcomes,
        method_verdicts,
        shared_metric,
        token_panels,
    )
    from ..evaluation.plots import check_plot, write_plot

    if plot is not None:
        check_plot(plot, force=force)
    outcomes = method_outcomes(lake, names, budget)
    metric = shared_metric(outcomes)
    if metric is None:
        raise ConfigError(
            f"{', '.join(names)}: no figure was measured for every method under the same seed"
        )
    if plot is not None:
        write_plot(plot, token_panels(outcomes[1:], metric), force=force)
    document = {
        "policy_tokens": budget,
        "methods": [_method(outcome) for outcome in outcomes],
        "remarks": list(_remarks(outcomes, budget)),
        "verdicts": [_verdict(each) for each in method_verdicts(outcomes[1:])],
    }
    out.document(document, lambda: _print_equal(outcomes, document))


def _print_equal(outcomes: "Sequence[MethodOutcome]", document: Mapping[str, Any]) -> None:
    from rich.console import Console

    from ..data.text import print_wrapped
    from ..lake.query.format_figures import figure_label, format_bounds, format_difference
    from ..lake.query.row_table import print_figures, print_texts

    console, seeds = Console(), len(outcomes[0].courses)
    rows = [_row(outcome) for outcome in outcomes]
    over = f"over {seeds} seeds" if seeds > 1 else "over prompts, as there is one seed"
    print_wrapped(
        console,
        f"Held-out prompts (test): the last policy within {document['policy_tokens']:,} generated "
        f"tokens; mean [95 % {over}]",
    )
    columns = list(dict.fromkeys(name for row in rows for name in row))
    figures = [(_heading(name), [_cell(name, row.get(name)) for row in rows]) for name in columns]
    print_figures(console, [("Method", [outcome.method for outcome in outcomes])], figures)
    print_wrapped(console, "Verdicts")
    cells = [
        (
            *(each["method"], each["against"], each["answer"], figure_label(each["metric"])),
            format_difference(each["metric"], each["difference"]),
            format_bounds(each["metric"], each["low"], each["high"]),
            f"{each['prompts']:,}",
        )
        for each in document["verdicts"]
    ]
    headings = ("Method", "against", "answer", "by", "difference", "", "prompts")
    print_texts(console, headings, cells)
    for remark in document["remarks"]:
        print_wrapped(console, remark)


def _row(outcome: "MethodOutcome") -> "dict[str, SeedMean]":
    """Return a method's figures and costs that all its runs measured; M_0 was free."""
    from ..evaluation.compare_runs import INITIAL
    from ..evaluation.method_outcomes import COSTS, FIGURES

    names = FIGURES if outcome.method == INITIAL else (*FIGURES, *COSTS)
    return {name: found for name in names if (found := outcome.figure(name)) is not None}


def _method(outcome: "MethodOutcome") -> "dict[str, Json]":
    figures: dict[str, Json] = {}
    for name, found in _row(outcome).items():
        figures |= {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
    return {
        "method": outcome.method,
        "runs": [course.run for course in outcome.courses],
        "policies": [point.policy.name for point in outcome.points],
        **figures,
    }


def _heading(name: str) -> str:
    from ..evaluation.method_outcomes import COSTS
    from ..lake.query.format_figures import figure_label

    return name.replace("_", " ") if name in COSTS else figure_label(name)


def _cell(name: str, found: "SeedMean | None") -> str:
    """Return a figure or a cost with its interval."""
    from ..evaluation.method_outcomes import COSTS
    from ..lake.query.format_figures import format_value

    def as_text(value: float) -> str:
        if name not in COSTS:
            return format_value(name, value)
        return f"{value:,.2f}" if name == "hours" else f"{value:,.0f}"

    if found is None:
        return ""
    if found.low is None or found.high is None:
        return as_text(found.value)
    return f"{as_text(found.value)} [{as_text(found.low)}, {as_text(found.high)}]"


def _verdict(each: "PairwiseVerdict") -> "dict[str, Json]":
    decision = each.decision
    is_worse = decision.high is not None and decision.high < 0
    return {
        "method": each.after.method,
        "against": each.before.method,
        "answer": "worse" if is_worse else decision.answer,
        "metric": each.metric,
        "difference": decision.difference,
        "low": decision.low,
        "high": decision.high,
        "prompts": decision.n,
    }


def _remarks(outcomes: "Sequence[MethodOutcome]", budget: int) -> Iterator[str]:
    """Yield the remarks that a reader of the tables needs."""
    from ..evaluation.compare_runs import incomparable
    from ..evaluation.method_outcomes import ENOUGH, FIGURES

    together = [outcome.together for outcome in outcomes]
    for name in FIGURES:
        reason = incomparable(together, name)
        if reason is not None:
            yield f"not comparable as it stands: {_heading(name)}, measured {reason}"
    for outcome in outcomes[1:]:
        if outcome.is_short(budget):
            yield (
                f"{outcome.method} used less than {100 * ENOUGH:.0f} % of the budget in a run: "
                "its policy had fewer tokens to learn from than the others'"
            )
    if len(outcomes[0].courses) == 1:
        yield "one seed: the verdicts are about these policies, not about the methods"
