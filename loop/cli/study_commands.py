"""`lpfloop study`: runs the arms of a study and decides its claims."""

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...stores.address import DEFAULT_LAKE, in_lake
from ..daemon.run_request import RunOptions
from .options import (
    DocumentOutput,
    Lake,
    Replace,
)
from .session import turn

if TYPE_CHECKING:
    from ..studies.run_study import StudyRequest
    from ..studies.study import Study, StudyFinding


Place = Annotated[
    Path,
    typer.Argument(
        help="A study's file, or a folder whose studies are listed.", metavar="FILE|FOLDER"
    ),
]
Seeds = Annotated[
    int,
    typer.Option(
        "--seeds", min=1, help="Number of seeds from --seed on; one seed decides nothing."
    ),
]
First = Annotated[int, typer.Option("--seed", min=0, help="Root of all random draws: the first.")]
Pages = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="What to write: the page and plot, into this folder."),
]


def study(
    place: Place,
    *,
    seeds: Seeds = 3,
    seed: First = 0,
    options: Annotated[RunOptions, "config prompts policy critic settings"],
    lake: Lake = DEFAULT_LAKE,
    output: Pages = None,
    force: Replace = False,
    out: DocumentOutput,
) -> None:
    """Decide a paper's claims by runs over several seeds.

    The same command continues a study that was stopped. The runs' names are study-ARM-SEED; other
    studies share them. Without options they run in the tiny world; --policy and --critic name other
    models. For a folder it lists the studies; -o writes the list with the verdicts of their pages.
    """
    from rich.console import Console

    from ..lake.query.row_table import print_texts
    from ..studies.run_study import StudyRequest, run_study
    from ..studies.study import load_studies, load_study
    from ..studies.study_pages import PageFacts, check_page, write_index, write_page

    if place.is_dir():
        studies = load_studies(place)
        if output is not None:
            typer.echo(write_index(output, studies, force=force))
            return
        rows = [(s.name, s.hypothesis, s.paper, _arms(s)) for s in studies]
        headings = ("study", "hypothesis", "paper", "arms")
        out.document(
            [one.document() for one in studies], lambda: print_texts(Console(), headings, rows)
        )
        return
    found = load_study(place)
    if output is not None:
        check_page(output, found, force=force)
    chosen = options.in_lake(lake)
    request = StudyRequest(
        study=found,
        seeds=tuple(range(seed, seed + seeds)),
        lake=lake,
        config=chosen.preset,
        overrides=tuple(chosen.overrides),
        env=os.environ,
    )
    from ..run.terminal import say

    remarks = run_study(request, turn, say)
    finding = found.find(request.evidence)
    out.document(
        {"study": found.name, "seeds": list(request.seeds), **finding.document()},
        lambda: _print_finding(found, finding, in_lake(lake)),
    )
    if output is not None:
        facts = PageFacts(
            seeds=request.seeds,
            world="the tiny world" if request.is_tiny else f"the configuration {request.config}",
            command=_command(place, request, options),
            remarks=remarks,
            where=in_lake(lake),
        )
        say(f"written: {write_page(output, found, finding, facts, force=force)}")


def _command(place: Path, request: "StudyRequest", options: RunOptions) -> str:
    words = ["lpfloop", "study", str(place), "--seeds", str(len(request.seeds))]
    words += ["--seed", str(request.seeds[0])]
    if not request.is_tiny:
        words += ["--config", str(request.config)]
    words += ["--prompts", options.prompts] if options.prompts else []
    words += ["--policy", options.policy] if options.policy else []
    words += ["--critic", options.critic] if options.critic else []
    words += [word for setting in options.settings for word in ("--set", str(setting))]
    return f"{shlex.join(words)}{in_lake(request.lake)}"


def _print_finding(study: "Study", finding: "StudyFinding", where: str) -> None:
    from rich.console import Console

    from ..data.text import print_wrapped
    from ..lake.query.row_table import print_texts
    from ..studies.study_pages import claim_table

    console = Console()
    if study.built_in:
        print_wrapped(console, f"built in: {study.built_in}")
    print_wrapped(console, study.hypothesis)
    claims = claim_table(finding.claims)
    print_texts(console, claims.columns, claims.rows)
    for note in finding.notes:
        print_wrapped(console, note)
    print_wrapped(console, f"{study.name}: {finding.verdict}")
    for command in finding.commands:
        print_wrapped(console, f"look at it: `{command}{where}`")


def _arms(study: "Study") -> str:
    return ", ".join(arm.name for arm in study.arms)
