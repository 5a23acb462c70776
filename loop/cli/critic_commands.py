"""The command that checks a critic against verified results and people: `critic-check`."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...stores.address import DEFAULT_LAKE, in_lake
from ..lake.query.forms import Form, FormError
from .common import AsForm, AsJson, Lake, exit_codes
from .session import stop_signal, turn

if TYPE_CHECKING:
    from ...critics.verify import Verifier
    from ...stores.keys import Json
    from ...stores.lake import RunReader
    from ..evaluation.critic_answers import AnswerDraw
    from ..evaluation.critic_check import AnswerGroup


DRAWS, SEED = 1000, 0
"""Bootstrap resamples, and the root of all random draws."""


class OneSplit(StrEnum):
    """The values of `--split`."""

    TRAIN = "train"
    DEV = "dev"
    HELD_OUT = "held-out"


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherWay:
    """A wish to ask the critic again: about how many answers, with the reference or without."""

    number: int
    reference: bool


def critic_check(
    source: Annotated[
        str | None,
        typer.Argument(
            help="A run, or a file of ratings and labels; default: the latest run.",
            metavar="RUN|FILE",
        ),
    ] = None,
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
    without_reference: Annotated[
        int | None,
        typer.Option(min=1, help="Ask the critic again about N answers, without the reference."),
    ] = None,
    with_reference: Annotated[
        int | None,
        typer.Option(min=1, help="Ask the critic again about N answers, with the reference."),
    ] = None,
    distributions: Annotated[
        bool,
        typer.Option(
            "--distributions", help="Show how many right and wrong answers got each score."
        ),
    ] = False,
    lake: Lake = DEFAULT_LAKE,
    form: AsForm = Form.AUTO,
    as_json: AsJson = False,
) -> None:
    """Check whether a critic tells right from wrong answers.

    And whether a reward model does.
    """
    from ..daemon.check_critic import named_groups
    from ..evaluation.critic_answers import AnswerDraw
    from ..evaluation.critic_check import Resampling, figures
    from ..evaluation.critic_report import (
        distributions as distributed,
    )
    from ..evaluation.critic_report import (
        document,
        figures_frame,
        print_figures,
    )
    from ..lake.query.row_output import is_table, write_frame
    from .tables import print_json

    with exit_codes():
        table = is_table(form, as_json=as_json)
        again = _other_way(source, without_reference, with_reference)
        draw = AnswerDraw(
            by=named_groups(by),
            split=None if split is None else split.value,
            limit=sample,
            seed=SEED,
        )
        groups = _groups(source, lake, draw, again)
        if distributions:
            write_frame(distributed(groups), form, as_json=as_json)
            return
        found = [figures(group, Resampling(draws=DRAWS, seed=SEED)) for group in groups]
        if as_json:
            settings: Json = {"limit": sample, "draws": DRAWS, "seed": SEED}
            print_json(document(found, settings))
        elif table:
            print_figures(found, None if again else sample)
        else:
            write_frame(figures_frame(found), form)


def _other_way(source: str | None, without: int | None, with_: int | None) -> OtherWay | None:
    if without is not None and with_ is not None:
        raise FormError("--with-reference and --without-reference exclude each other")
    if source is None and (without is not None or with_ is not None):
        raise FormError("name the run whose critic rates again, as the first argument")
    if without is not None:
        return OtherWay(number=without, reference=False)
    return None if with_ is None else OtherWay(number=with_, reference=True)


def _groups(
    source: str | None, lake: Path, draw: "AnswerDraw", again: OtherWay | None
) -> "Sequence[AnswerGroup]":
    """Return the judged answers of a file, or of a run."""
    from ..evaluation.critic_files import labelled_groups
    from ..lake.query.runs import open_run

    if source is not None and Path(source).is_file():
        if again is not None:
            raise FormError("only a run's critic can rate again: name a run")
        return labelled_groups(Path(source), draw)
    with closing(open_run(lake, source)) as run:
        return _of_run(run, lake, draw, again)


def _of_run(
    run: "RunReader", lake: Path, draw: "AnswerDraw", again: OtherWay | None
) -> "Sequence[AnswerGroup]":
    from ..daemon.check_critic import run_groups, verifier_of

    if again is None:
        return run_groups(run, draw)
    with verifier_of(run) as verifier:
        return _asked_again(run, lake, draw, again, verifier)


def _asked_again(
    run: "RunReader", lake: Path, draw: "AnswerDraw", again: OtherWay, verifier: "Verifier"
) -> "Sequence[AnswerGroup]":
    """Ask the critic again about some answers; return its judgments in both ways."""
    from ..daemon.critique_run import other_way, recritique_job
    from ..data.files import InputError
    from ..evaluation.critic_answers import answers_with_reference, same_answers
    from ..lake.query.runs import open_run
    from ..run.terminal import say

    config = other_way(run, reference=again.reference)
    ids = answers_with_reference(
        run,
        replace(draw, limit=again.number),
        config.critic.task_aspects,
        shown=not again.reference,
    )
    if not ids:
        raise InputError(
            f"run {run.folder.name} contains no critiqued answer to a prompt with a reference that "
            "the critic could read"
        )
    job = recritique_job(run, lake, ids, config)
    say(f"{len(ids):,} answers, one a prompt; run {job.name}")
    turn(job, stop_signal(config))
    say(f"look at it: `lpfloop critiques {job.name}{in_lake(lake)}`")
    with closing(open_run(lake, job.name)) as beside:
        return same_answers([run, beside], ids, draw, verifier)
