"""Methods at equal tokens: `run --policy-tokens`, and `compare --policy-tokens` of its runs."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .session import stop_signal, turn

if TYPE_CHECKING:
    from ...stores.keys import Json
    from ..daemon.job import Job
    from ..daemon.suite import Suite
    from ..evaluation.method_outcomes import FigureInterval, MethodOutcome
    from ..evaluation.pairwise_verdicts import PairwiseVerdict

TRIALS = 3
"""The default number of trials of a method."""


def require_together(policy_tokens: int | None, trials: int | None, *, several: bool) -> None:
    """Refuse trials without a budget, and a budget without several methods.

    Raises:
        ConfigError: naming the option.
    """
    from ...configs.schema import ConfigError

    if policy_tokens is None and trials is not None:
        raise ConfigError(
            "--trials is about methods at equal tokens: add --policy-tokens N, the tokens that "
            "each may generate to learn from"
        )
    if policy_tokens is not None and not several:
        raise ConfigError(
            f"--policy-tokens {policy_tokens} gives several methods the same budget: name them by "
            "--recipes, such as rlrf,reward-only"
        )


def compare_at_equal_tokens(
    suite: "Suite", recipes: str, policy_tokens: int, trials: int | None
) -> None:
    """Work on a comparison's trials and runs, then print it, and the command to draw it.

    Raises:
        ConfigError: before anything is run, if the comparison cannot be made.
    """
    from ...stores.address import in_lake
    from ..daemon.equal_tokens import EqualComparison, compared_methods
    from ..run.terminal import say

    def work(job: "Job") -> None:
        turn(job, stop_signal(job.config, lift_pause=True))

    comparison = EqualComparison(
        suite=suite, budget=policy_tokens, trials=trials or TRIALS, turn=work, note=say
    )
    names = comparison.run(compared_methods(recipes))
    show_equal(suite.lake, names, policy_tokens)
    again = f"lpfloop compare {' '.join(names)} --policy-tokens {policy_tokens}"
    say(f"draw it: `{again} --plot {suite.prefix}.svg{in_lake(suite.lake)}`")


def show_equal(
    lake: Path,
    names: Sequence[str],
    budget: int,
    *,
    plot: Path | None = None,
    force: bool = False,
    as_json: bool = False,
) -> None:
    """Print runs at equal tokens by method, or as a JSON document; draw a plot if asked for.

    Raises:
        NoSuchRunError: if a run does not exist.
        ConfigError: if nothing was measured under a seed that all methods share.
        FormError, TargetError: if the plot cannot be made.
    """
    from rich.console import Console

    from ...configs.schema import ConfigError
    from ..data.text_wrap import print_wrapped
    from ..evaluation.figure_tables import print_figures, print_texts
    from ..evaluation.method_outcomes import method_outcomes, method_verdicts, shared_metric
    from ..evaluation.plots import check_plot, write_plot
    from ..evaluation.token_panels import token_panels
    from .tables import print_json

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
    rows = [_row(outcome) for outcome in outcomes]
    verdicts = method_verdicts(outcomes[1:])
    remarks = list(_remarks(outcomes, budget))
    if as_json:
        plain: list[dict[str, Json]] = [
            {
                "method": outcome.method,
                "runs": [course.run for course in outcome.courses],
                "policies": [point.policy.name for point in outcome.points],
                **{
                    key: value
                    for name, found in row.items()
                    for key, value in _bounds(name, found).items()
                },
            }
            for outcome, row in zip(outcomes, rows, strict=True)
        ]
        document = {"policy_tokens": budget, "methods": plain, "remarks": remarks}
        print_json({**document, "verdicts": [_verdict(each) for each in verdicts]})
        return
    console, seeds = Console(), len(outcomes[0].courses)
    over = f"over {seeds} seeds" if seeds > 1 else "over prompts, as there is one seed"
    print_wrapped(
        console,
        f"Held-out prompts (test): the last policy within {budget:,} generated tokens; mean "
        f"[95 % {over}]",
    )
    columns = list(dict.fromkeys(name for row in rows for name in row))
    figures = [(_heading(name), [_cell(name, row.get(name)) for row in rows]) for name in columns]
    print_figures(console, [("Method", [outcome.method for outcome in outcomes])], figures)
    print_wrapped(console, "Verdicts")
    print_texts(
        console,
        ("Method", "against", "answer", "by", "difference", "", "prompts"),
        [_verdict_cells(each) for each in verdicts],
    )
    for remark in remarks:
        print_wrapped(console, remark)


def _row(outcome: "MethodOutcome") -> "dict[str, FigureInterval]":
    """Return a method's figures and costs that all its runs measured; M_0 was free."""
    from ..evaluation.compare_runs import INITIAL
    from ..evaluation.method_outcomes import COSTS, FIGURES

    names = FIGURES if outcome.method == INITIAL else (*FIGURES, *COSTS)
    return {name: found for name in names if (found := outcome.figure(name)) is not None}


def _bounds(name: str, found: "FigureInterval") -> dict[str, float | None]:
    return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}


def _heading(name: str) -> str:
    from ..evaluation.method_outcomes import COSTS
    from ..evaluation.token_course import DRIFT
    from ..lake.query.format_figures import figure_label

    return name.replace("_", " ") if name in (DRIFT, *COSTS) else figure_label(name)


def _cell(name: str, found: "FigureInterval | None") -> str:
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


def _verdict_cells(each: "PairwiseVerdict") -> list[str]:
    from ..lake.query.format_figures import figure_label, format_bounds, format_difference

    metric, decision = each.metric, each.decision
    return [
        each.after.method,
        each.before.method,
        str(_verdict(each)["answer"]),
        figure_label(metric),
        format_difference(metric, decision.difference),
        format_bounds(metric, decision.low, decision.high),
        f"{decision.n:,}",
    ]


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
