"""Methods at equal tokens: `run --policy-tokens`; `compare --equal-tokens` shows them again."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .session import stop_signal, turn

if TYPE_CHECKING:
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
            "--variants, such as rlrf,reward-only"
        )


def compare_at_equal_tokens(
    suite: "Suite", variants: str, policy_tokens: int, judge_tokens: int | None, trials: int | None
) -> None:
    """Work on a comparison's trials and runs, then print it, and say how to draw it.

    Raises:
        ConfigError: before anything is run, if the comparison cannot be made.
    """
    from ...stores.address import in_lake
    from ..daemon.equal_tokens import EqualComparison, compared_methods
    from ..evaluation.token_course import TokenBudget
    from ..run.terminal import say

    def work(job: "Job") -> None:
        turn(job, stop_signal(job.config, lift_pause=True))

    budget = TokenBudget(policy_tokens=policy_tokens, judge_tokens=judge_tokens)
    comparison = EqualComparison(
        suite=suite, budget=budget, trials=trials or TRIALS, turn=work, note=say
    )
    name = comparison.run(compared_methods(variants)).name
    show_equal(suite.lake, [name])
    again, where = f"lpfloop compare --equal-tokens {name}", in_lake(suite.lake)
    say(f"show it again: `{again}{where}`; draw it: `{again} --plot {name}.svg{where}`")


def show_equal(
    lake: Path,
    names: Sequence[str],
    *,
    plot: Path | None = None,
    force: bool = False,
    as_json: bool = False,
) -> None:
    """Print a comparison at equal tokens, or its JSON document; draw a plot if asked for.

    Raises:
        ConfigError: if the comparison does not exist, or there is nothing to draw.
        FormError, TargetError: if the plot cannot be made.
    """
    from rich.console import Console

    from ...configs.schema import ConfigError
    from ..daemon.equal_record import known_comparisons, read_record
    from ..daemon.equal_table import (
        equal_document,
        equal_remarks,
        equal_tables,
        outcomes_of,
    )
    from ..data.text_wrap import tell
    from ..evaluation.figure_tables import print_texts
    from ..evaluation.method_outcomes import shared_metric
    from ..evaluation.plots import check_plot, write_plot
    from ..evaluation.token_panels import token_panels
    from .tables import print_json

    if len(names) > 1:
        raise ConfigError("--equal-tokens shows one comparison: give one name")
    if plot is not None:
        check_plot(plot, force=force)
    record = read_record(lake, names[0])
    if record is None:
        known = ", ".join(known_comparisons(lake))
        others = f", but {known}" if known else ""
        raise ConfigError(
            f"no comparison {names[0]} at equal tokens in {lake}{others}: `lpfloop run --variants "
            "NAME,NAME --policy-tokens N` makes one"
        )
    outcomes = outcomes_of(lake, record)
    if plot is not None:
        metric = shared_metric(outcomes)
        if metric is None:
            raise ConfigError("nothing to draw: no method has measured a policy yet")
        write_plot(plot, token_panels(outcomes, metric), force=force)
    if as_json:
        print_json(equal_document(record, outcomes))
        return
    console = Console()
    for title, (head, rows) in equal_tables(record, outcomes).items():
        tell(console, title)
        print_texts(console, head, rows)
    for remark in equal_remarks(record, outcomes):
        tell(console, remark)
