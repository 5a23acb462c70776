"""The command that checks a critic against verified results and people: `critic-check`."""

from contextlib import closing
from enum import StrEnum
from typing import Annotated

import typer

from ...stores.address import DEFAULT_LAKE
from .common import AnyRun, Lake
from .output import RowOutput


class OneSplit(StrEnum):
    """The values of `--split`."""

    TRAIN = "train"
    DEV = "dev"
    HELD_OUT = "held-out"


def critic_check(
    name: AnyRun = None,
    *,
    by: Annotated[
        str,
        typer.Option(
            help="Group by this: task, kind, family, iteration, split, aspect or reference, or "
            "several with commas."
        ),
    ] = "task",
    split: Annotated[
        OneSplit | None, typer.Option(help="Only these prompts; default: all.")
    ] = None,
    sample: Annotated[
        int, typer.Option(min=1, help="Draw at most N answers of each group at random.")
    ] = 2000,
    distributions: Annotated[
        bool,
        typer.Option(
            "--distributions", help="Show how many right and wrong answers got each score."
        ),
    ] = False,
    lake: Lake = DEFAULT_LAKE,
    out: RowOutput,
) -> None:
    """Check whether a critic tells right from wrong answers.

    And whether a reward model does.
    """
    from ..daemon.check_critic import named_groups, run_groups
    from ..evaluation.critic_answers import AnswerDraw
    from ..evaluation.critic_check import figures
    from ..evaluation.critic_report import distributions as distributed
    from ..evaluation.critic_report import figures_frame, print_figures
    from ..lake.query.runs import open_run

    draw = AnswerDraw(
        by=named_groups(by),
        split=None if split is None else split.value,
        limit=sample,
    )
    with closing(open_run(lake, name)) as run:
        groups = run_groups(run, draw)
    if distributions:
        out.rows(distributed(groups))
        return
    found = [figures(group) for group in groups]
    if out.is_table:
        print_figures(found, sample)
    else:
        out.rows(figures_frame(found))
