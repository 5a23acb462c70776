"""Methods at equal tokens: `run --policy-tokens`; `compare --equal-tokens` shows them again."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .session import stop_signal, turn

if TYPE_CHECKING:
    from ..daemon.equal_table import EqualTable
    from ..daemon.job import Job
    from ..daemon.suite import Suite

TRIALS = 3
"""The default number of trials of a method."""


def require_together(
    policy_tokens: int | None, beside: Mapping[str, object], *, several: bool
) -> None:
    """Refuse options of a comparison without its budget, and a budget without several methods.

    Raises:
        ConfigError: naming the option.
    """
    from ...configs.schema import ConfigError

    alone = next((option for option, value in beside.items() if value is not None), None)
    if policy_tokens is None and alone is not None:
        raise ConfigError(
            f"{alone} is about methods at equal tokens: add --policy-tokens N, the tokens that "
            "each may generate to learn from"
        )
    if policy_tokens is not None and not several:
        raise ConfigError(
            f"--policy-tokens {policy_tokens} gives several methods the same budget: name them by "
            "--variants, such as rlrf,reward-only, without --paper"
        )


def compare_at_equal_tokens(
    suite: "Suite", variants: str, policy_tokens: int, judge_tokens: int | None, trials: int | None
) -> None:
    """Work on a comparison's trials and runs, then print it, and say how to draw it.

    Raises:
        ConfigError: before anything is run, if the comparison cannot be made.
    """
    from ...stores.address import in_lake
    from ..daemon.equal_tokens import EqualSuite, compared_methods, run_equal
    from ..evaluation.token_course import TokenBudget
    from ..run.terminal import say

    def work(job: "Job") -> None:
        turn(job, stop_signal(job.config, lift_pause=True))

    budget = TokenBudget(policy_tokens=policy_tokens, judge_tokens=judge_tokens)
    equal = EqualSuite(suite=suite, budget=budget, trials=trials or TRIALS)
    record = run_equal(equal, compared_methods(variants), work, say)
    print_equal(_table(suite.lake, record.name))
    again, where = f"lpfloop compare --equal-tokens {record.name}", in_lake(suite.lake)
    say(f"show it again: `{again}{where}`; draw it: `{again} --plot {record.name}.svg{where}`")


def show_equal(
    lake: Path,
    names: Sequence[str],
    *,
    plot: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Print comparisons at equal tokens again, or one as JSON; draw a plot if asked for.

    Raises:
        ConfigError: if a comparison does not exist.
        FormError, TargetError: if the plot cannot be made.
    """
    from ...configs.schema import ConfigError
    from ..evaluation.plots import check_plot
    from .tables import print_json

    if len(names) > 1:
        raise ConfigError("--equal-tokens shows one comparison: give one name")
    (name,) = names
    if plot is not None:
        check_plot(plot, force=force)
    shown = _table(lake, name)
    if plot is not None:
        _write_plot(shown, plot, force=force)
    if as_json:
        print_json(shown.as_document())
    else:
        print_equal(shown)


def print_equal(shown: "EqualTable") -> None:
    """Print a comparison: each method's results, which is better, and the trials."""
    from rich.console import Console

    from ..daemon.equal_table import TRIAL_HEAD, VERDICT_HEAD
    from ..data.text_wrap import tell
    from .compare_tables import fitted_tables, print_texts

    console = Console()
    tell(console, shown.title)
    for table in fitted_tables(shown.names, shown.columns, console.width):
        console.print(table)
    print_texts(console, VERDICT_HEAD, shown.verdict_rows)
    print_texts(console, TRIAL_HEAD, shown.trial_rows)
    for remark in shown.remarks():
        tell(console, remark)


def _table(lake: Path, name: str) -> "EqualTable":
    """Return the table of a comparison.

    Raises:
        ConfigError: if it does not exist, naming the existing ones.
    """
    from ...configs.schema import ConfigError
    from ..daemon.equal_record import known_comparisons, read_record
    from ..daemon.equal_table import EqualTable, outcomes_of

    record = read_record(lake, name)
    if record is None:
        known = ", ".join(known_comparisons(lake))
        others = f", but {known}" if known else ""
        raise ConfigError(
            f"no comparison {name} at equal tokens in {lake}{others}: `lpfloop run --variants "
            "NAME,NAME --policy-tokens N` makes one"
        )
    return EqualTable(record=record, outcomes=outcomes_of(lake, record))


def _write_plot(shown: "EqualTable", path: Path, *, force: bool) -> None:
    from ...configs.schema import ConfigError
    from ..evaluation.method_outcomes import shared_metric
    from ..evaluation.plots import write_plot
    from ..evaluation.token_panels import token_panels

    metric = shared_metric(shown.outcomes)
    panels = [] if metric is None else token_panels(shown.outcomes, metric)
    if not panels:
        raise ConfigError("nothing to draw: no method has measured a policy yet")
    write_plot(path, panels, force=force)
