"""A check of judges against people: from files and runs to the report of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..data.files import InputError
from .judge_agreement import AgreementQuestion, agreements
from .judge_check import Settings, check
from .judge_plots import plot_check
from .judge_report import JudgeReport
from .judgment_formats import PEOPLE
from .judgment_sources import judgments_of
from .judgments import collect
from .kappas import annotator_kappas
from .plots import check_plot


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSources:
    """Files of judgments or names of runs, the prefixes of people's names, a field to group by."""

    sources: Sequence[str]
    lake: Path
    human: Sequence[str] = ()
    by: str | None = None


def judges_checked(
    asked: JudgeSources,
    settings: Settings,
    question: AgreementQuestion,
    *,
    kappas: bool = False,
    plot: Path | None = None,
    force: bool = False,
) -> JudgeReport:
    """Check judges, and plot the check if a file for that is given.

    Raises:
        InputError: if the sources hold no judgments of two outputs, or not the field.
        TargetError: if the plot cannot be written.
    """
    if plot is not None:
        check_plot(plot, force=force)
    people = (*PEOPLE, *asked.human)
    judgments = collect(judgments_of(asked.sources, asked.lake, people, by=asked.by))
    if not len(judgments.instructions):
        raise InputError("no judgments of two different outputs in: " + ", ".join(asked.sources))
    if asked.by is not None and not (any(judgments.tasks) or judgments.disputed):
        raise InputError(f"--by {asked.by}: no judgment has a field of this name")
    wanted = asked.by is not None or question != AgreementQuestion()
    checked = check(judgments, settings)
    report = JudgeReport(
        judgments=judgments,
        settings=settings,
        checked=checked,
        agreed=agreements(judgments, question, settings) if wanted else [],
        by=asked.by,
        twos=annotator_kappas(judgments, draws=settings.draws, seed=settings.seed)
        if kappas
        else None,
    )
    if plot is not None:
        plot_check(plot, checked, report.twos or (), force=force)
    return report
