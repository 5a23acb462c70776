"""The command that checks judges against people: `judge-check`."""

from pathlib import Path
from typing import Annotated

import typer

from .common import (
    DEFAULT_LAKE,
    AsJson,
    ByField,
    Draws,
    DrawSeed,
    Human,
    Lake,
    Replace,
    chosen_run,
    exit_codes,
)


def judge_check(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files of judgments, or names of runs; default: the latest run.",
            metavar="RUN|FILE...",
        ),
    ] = None,
    *,
    human: Human = None,
    by: ByField = None,
    second: Annotated[
        str | None, typer.Option(help="Also show how this judge agrees, by wins, ties and losses.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Also show how often this model's outputs win, tie and lose.")
    ] = None,
    kappas: Annotated[
        bool, typer.Option("--kappas", help="Also show Cohen's kappa for each pair of annotators.")
    ] = False,
    panel: Annotated[
        int, typer.Option(min=2, help="Largest number of verdicts that form a majority.")
    ] = 4,
    draws: Draws = 2000,
    seed: DrawSeed = 0,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", help="Also draw a plot into this .svg, .png or .pdf file."),
    ] = None,
    force: Replace = False,
    lake: Lake = DEFAULT_LAKE,
    as_json: AsJson = False,
) -> None:
    """Check how well judges agree with people."""
    from ..data.files import InputError
    from ..evaluation.judge_agreement import AgreementQuestion, agreements
    from ..evaluation.judge_check import Settings, check
    from ..evaluation.judge_report import JudgeReport, document, plot_check, print_report
    from ..evaluation.judgment_formats import PEOPLE
    from ..evaluation.judgment_sources import judgments_of
    from ..evaluation.judgments import collect
    from ..evaluation.kappas import annotator_kappas
    from ..evaluation.plots import check_plot
    from .tables import print_json

    with exit_codes():
        if plot is not None:
            check_plot(plot, force=force)
        sources = sources or [chosen_run(lake, None, tell=True)]
        judgments = collect(judgments_of(sources, lake, (*PEOPLE, *(human or ())), by=by))
        if not len(judgments.instructions):
            raise InputError("no judgments of two different outputs in: " + ", ".join(sources))
        if by is not None and not (any(judgments.tasks) or judgments.disputed):
            raise InputError(f"--by {by}: no judgment has a field of this name")
        settings = Settings(panel=panel, draws=draws, seed=seed)
        question = AgreementQuestion(second=second, model=model)
        asked = by is not None or question != AgreementQuestion()
        checked = check(judgments, settings)
        report = JudgeReport(
            judgments=judgments,
            settings=settings,
            checked=checked,
            agreed=agreements(judgments, question, settings) if asked else [],
            by=by,
            twos=annotator_kappas(judgments, draws=draws, seed=seed) if kappas else None,
        )
        if plot is not None:
            plot_check(plot, checked, force=force)
        if as_json:
            print_json(document(report))
        else:
            print_report(report)
