"""Commands that measure: `critic-check`, `judge-check`, `eval run`."""

import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ...stores.address import DEFAULT_LAKE
from .common import chosen_run
from .options import (
    AnyRun,
    ByField,
    DocumentOutput,
    Human,
    Lake,
    Layout,
    Plot,
    Replace,
    RowOutput,
    Settings,
)
from .session import reporting

if TYPE_CHECKING:
    from ...configs.schema import RewardConfig
    from ...stores.records import Evaluation


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
        Literal["train", "dev", "held-out"] | None,
        typer.Option(help="Only these prompts; default: all."),
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
    from ..daemon.evaluate_run import named_groups, run_groups
    from ..evaluation.critic_answers import AnswerDraw
    from ..evaluation.critic_check import figures
    from ..evaluation.critic_report import distributions as distributed
    from ..evaluation.critic_report import figures_frame, print_figures
    from ..lake.query.runs import open_run

    draw = AnswerDraw(
        by=named_groups(by),
        split=split,
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


def judge_check(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files of judgments, or names of runs; default: the latest run.",
            metavar="RUN|FILE...",
        ),
    ] = None,
    *,
    layout: Layout = None,
    human: Human = None,
    by: ByField = None,
    second: Annotated[
        str | None, typer.Option(help="Also show how this judge agrees, by wins, ties and losses.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Also show how often this model's outputs win, tie and lose.")
    ] = None,
    reward: Annotated[
        str | None,
        typer.Option(help="Also judge the pairs by this reward model: a folder, or tiny."),
    ] = None,
    settings: Settings = None,
    plot: Plot = None,
    force: Replace = False,
    lake: Lake = DEFAULT_LAKE,
    out: RowOutput,
) -> None:
    """Check how well judges agree with people.

    Also their bias, variance, preferences and consistency.
    """
    from ..evaluation.judge_report import judge_report, plot_report, print_report
    from ..evaluation.judgment_sources import JudgmentReading
    from ..evaluation.plots import check_plot
    from ..lake.imports.import_formats import named_layout

    if plot is not None:
        check_plot(plot, force=force)
    report = judge_report(
        sources or [chosen_run(lake, None, tell=True)],
        lake,
        JudgmentReading(human=human or (), by=by, layout=named_layout(layout)),
        second=second,
        model=model,
        reward=None if reward is None else _reward_model(reward, settings or ()),
    )
    if plot is not None:
        plot_report(plot, report, force=force)
    if out.is_table:
        print_report(report)
    else:
        out.rows(report.frame)


def _reward_model(reward: str, settings: Sequence[str]) -> "tuple[RewardConfig, Path]":
    """Return the settings and the folder of a reward model.

    Raises:
        ConfigError: if the folder holds no model.
    """
    from ...configs.load import load_config
    from ...configs.mistakes import ConfigError
    from ...policies.engines.engine import EngineError
    from ...policies.workers.identity import check_folder
    from ..run.models import locate_model

    folder = Path(locate_model(reward, "reward"))
    try:
        check_folder(folder)
    except EngineError as error:
        raise ConfigError(f"--reward: {error}") from error
    return load_config(None, None, settings, os.environ).reward, folder


def evaluate(
    name: AnyRun = None,
    *,
    lake: Lake = DEFAULT_LAKE,
    iteration: Annotated[
        str | None,
        typer.Option(
            "--iteration",
            metavar="T|M_T|M_T@STEP|latest|best",
            help="Only this iteration: the model of that name.",
        ),
    ] = None,
    prompts: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE|NAME=FILE",
            help="Prompts: a file to measure on, instead of the held-out ones.",
        ),
    ] = None,
    out: DocumentOutput,
) -> None:
    """Measure a run's models on held-out or other prompts."""
    from ...stores.frames import rows_frame
    from ...stores.records import Evaluation
    from ..daemon.evaluate_run import evaluate_run, files_of

    name = chosen_run(lake, name, tell=True)
    with reporting() as reporter:
        found = evaluate_run(lake, name, iteration, files_of(prompts or ()), reporter)
    if out.is_table:
        _print_measured(lake, name, found)
    else:
        out.rows(rows_frame(Evaluation, found))


def _print_measured(lake: Path, name: str, found: "Sequence[Evaluation]") -> None:
    """Print the results on the benchmarks of these numbers, of the models that they are about."""
    from rich.console import Console

    from ..lake.query.model_figures import run_results
    from ..lake.query.runs import open_run
    from ..report.result_table import print_results

    splits = dict.fromkeys(_split(number.benchmark) for number in found)
    with closing(open_run(lake, name)) as run:
        results = [run_results(run, split=split) for split in splits]
    for of in results:
        print_results(Console(), of.only({number.iteration for number in found}))


def _split(benchmark: str) -> str:
    """Return the split under which results on a benchmark are shown, held-out for all its sets."""
    from ..data.splits import HELD_OUT, is_measured_on

    return HELD_OUT if is_measured_on(benchmark, HELD_OUT) else benchmark
