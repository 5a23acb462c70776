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
