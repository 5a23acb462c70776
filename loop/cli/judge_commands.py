"""The command that checks judges against people: `judge-check`."""

from pathlib import Path
from typing import Annotated

import typer

from .common import DEFAULT_LAKE, AsJson, Lake, Replace, exit_codes


def judge_check(
    sources: Annotated[
        list[str], typer.Argument(help="Files of judgments, or names of runs.", metavar="SOURCE...")
    ],
    *,
    human: Annotated[
        list[str] | None,
        typer.Option("--human", help="Annotators whose names begin with this are people."),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(help="Also agreement by this field, such as a prompt's task."),
    ] = None,
    second: Annotated[
        str | None, typer.Option(help="Also agreement with this judge, in wins, ties and losses.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Also how often this model's outputs win, tie and lose.")
    ] = None,
    kappas: Annotated[
        bool, typer.Option("--kappas", help="Also Cohen's kappa of every two annotators.")
    ] = False,
    panel: Annotated[int, typer.Option(min=2, help="Most verdicts used for a majority.")] = 4,
    draws: Annotated[int, typer.Option(min=100, help="Bootstrap resamples.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the resampling.")] = 0,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Also plot to this .svg, .png or .pdf file.")
    ] = None,
    force: Replace = False,
    lake: Lake = DEFAULT_LAKE,
    as_json: AsJson = False,
) -> None:
    """Check judges: agreement with people, bias and variance, preferences, consistency."""
    from ..evaluation.judge_agreement import AgreementQuestion
    from ..evaluation.judge_check import Settings
    from ..evaluation.judge_report import document, print_report
    from ..evaluation.judges_checked import JudgeSources, judges_checked
    from .tables import print_json

    with exit_codes():
        report = judges_checked(
            JudgeSources(sources=sources, lake=lake, human=human or (), by=by),
            Settings(panel=panel, draws=draws, seed=seed),
            AgreementQuestion(second=second, model=model),
            kappas=kappas,
            plot=plot,
            force=force,
        )
        if as_json:
            print_json(document(report))
        else:
            print_report(report)
