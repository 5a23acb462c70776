"""Judging by hand: `annotate`, and what people said: `annotations`."""

import getpass
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...stores.address import DEFAULT_LAKE, in_lake
from ...stores.installation import pip_install
from ..lake.query.forms import Form, FormError
from .common import (
    AnyRun,
    AsForm,
    AsJson,
    DrawSeed,
    Lake,
    Limit,
    OneIteration,
    OneTask,
    exit_codes,
)
from .list_commands import list_rows

if TYPE_CHECKING:
    import polars as pl

    from ...stores.lake import RunReader
    from ..evaluation.annotation_session import AnnotationSession, JudgingCard
    from ..lake.annotations.judging_queue import QueueRequest

COLUMNS = ("judged_at", "annotator", "said", "comment", "seconds", "state", "first_id")
QUALITY = ("annotator", "day", "judged", "seconds", "shared", "others", "kappa", "verifier")
RULES = "disagreement, uncertain, failures, random"


def annotate(
    name: AnyRun = None,
    *,
    annotator: Annotated[
        str | None, typer.Option("--annotator", help="Who judges; default: the login name.")
    ] = None,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Judge which of two answers is better.")
    ] = False,
    rule: Annotated[
        str, typer.Option("--order", help=f"Which items come first: {RULES}.", metavar="RULE")
    ] = "disagreement",
    overlap: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the items that several people judge.")
    ] = 0.2,
    people: Annotated[
        int,
        typer.Option("--judges", min=2, max=20, help="Number of people who judge each of those."),
    ] = 2,
    task: OneTask = None,
    aspect: Annotated[
        str | None, typer.Option("--aspect", help="Only this aspect: the one to rate.")
    ] = None,
    iteration: OneIteration = None,
    items: Annotated[
        int, typer.Option("--limit", min=1, help="At most N items in the queue.")
    ] = 500,
    seed: DrawSeed = 0,
    again: Annotated[
        str | None,
        typer.Option("--again", help="Judge this answer once more.", metavar="CANDIDATE"),
    ] = None,
    commit: Annotated[
        bool, typer.Option("--commit", help="Only bring what was said into the run.")
    ] = False,
    lake: Lake = DEFAULT_LAKE,
) -> None:
    """Judge answers by hand, in the terminal."""
    from ..evaluation.annotation_session import AnnotationSession
    from ..lake.query.runs import open_run

    with exit_codes():
        if commit:
            _bring_in(_folder(lake, name), lake)
            return
        wanted = _request(
            pairs=pairs,
            rule=rule,
            overlap=(overlap, people),
            only=(task, aspect, iteration),
            items=items,
            seed=seed,
        )
        _require_terminal()
        with (
            closing(open_run(lake, name)) as run,
            closing(AnnotationSession(run, annotator or getpass.getuser(), wanted)) as session,
        ):
            session.begin()
            judged = _judge(session, None if again is None else session.again(again))
        typer.echo(f"{session.run}: {session.annotator} judged {judged} items")
        _bring_in(session.folder, lake)


def annotations(
    name: AnyRun = None,
    *,
    quality: Annotated[
        bool,
        typer.Option("--quality", help="List people instead: pace and agreement, by day."),
    ] = False,
    limit: Limit = None,
    lake: Lake = DEFAULT_LAKE,
    form: AsForm = Form.AUTO,
    as_json: AsJson = False,
) -> None:
    """List what people judged, or how well they agree."""
    from ..run.terminal import say

    def listed(run: "RunReader") -> "pl.LazyFrame":
        from ..evaluation.annotation_list import annotation_rows, quality_rows

        if quality:
            rows, told = quality_rows(run)
            for sentence in told:
                say(sentence)
        else:
            rows = annotation_rows(run)
        return rows if limit is None else rows.head(limit)

    list_rows(lake, name, listed, QUALITY if quality else COLUMNS, form, as_json=as_json)


def _request(
    *,
    pairs: bool,
    rule: str,
    overlap: tuple[float, int],
    only: tuple[str | None, str | None, int | None],
    items: int,
    seed: int,
) -> "QueueRequest":
    from ..data.assignments import Overlap
    from ..lake.annotations.judging_queue import QueueRequest, rule_named

    if pairs and only[1] is not None:
        raise FormError("--aspect: of two answers people say which is better as a whole")
    return QueueRequest(
        judged="pairs" if pairs else "ratings",
        rule=rule_named(rule),
        overlap=Overlap(share=overlap[0], people=overlap[1]),
        task=only[0],
        aspect=only[1],
        iteration=only[2],
        items=items,
        seed=seed,
    )


def _require_terminal() -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise FormError(
            "annotate needs a terminal, for its keys; `lpfloop annotations` lists what was said, "
            "and `lpfloop annotate --commit` brings it into the run"
        )


def _judge(session: "AnnotationSession", first: "JudgingCard | None") -> int:
    """Let the person judge until they quit; return how many items they judged."""
    try:
        from .judging_screen import JudgingScreen
    except ModuleNotFoundError as error:
        raise FormError(f"annotate needs Textual: {pip_install('textual')}") from error
    return JudgingScreen(session, first).run() or 0


def _folder(lake: Path, name: str | None) -> Path:
    from ..lake.query.runs import open_run

    run = open_run(lake, name)
    run.close()
    return run.folder


def _bring_in(folder: Path, lake: Path) -> None:
    """Bring what was said into the run, or say who does so."""
    from ...stores.lock import LockedError
    from ..lake.annotations.bring_in import bring_in_alone, waiting

    try:
        count = bring_in_alone(folder)
    except LockedError:
        typer.echo(
            f"{len(waiting(folder))} judgements wait: the process that works on run "
            f"{folder.name} takes them before it makes pairs; when it has ended, "
            f"`lpfloop annotate {folder.name} --commit{in_lake(lake)}` does"
        )
        return
    typer.echo(f"{folder.name}: {count} judgements came into the run")
