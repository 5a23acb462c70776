"""Commands that derive tables from stored rows without a model, and train from them."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ..lake.query.forms import Form
from .common import (
    DEFAULT_LAKE,
    AsForm,
    AsJson,
    Lake,
    OneIteration,
    RunArgument,
    exit_codes,
    in_lake,
)
from .session import stop_signal, work_on

if TYPE_CHECKING:
    from ..lake.derive.derivation import Told

NewName = Annotated[str | None, typer.Option("--name", help="Name of the derived table.")]


def rederive(
    name: RunArgument,
    *,
    rule: Annotated[
        str,
        typer.Option(
            help="Pairing rule, such as success_vs_failure, top_reward or mean-vs-random."
        ),
    ],
    top_k: Annotated[
        int | None, typer.Option(min=1, help="Positives a prompt; default: the run's own.")
    ] = None,
    distinct_positives: Annotated[
        bool | None,
        typer.Option(help="Whether no text is chosen twice in a prompt; default: the run's own."),
    ] = None,
    people: Annotated[
        Literal["decide", "ignored"] | None,
        typer.Option(help="What people's ratings are worth; default: the run's own."),
    ] = None,
    agreement: Annotated[
        Literal["all", "mean"] | None,
        typer.Option(help="What several critiques of an answer say together; default: the run's."),
    ] = None,
    iteration: OneIteration = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of random draws; default: the run's own.")
    ] = None,
    table: Annotated[
        str | None, typer.Option(help="pairs or demonstrations; default: what the rule makes.")
    ] = None,
    critiques: Annotated[
        str | None, typer.Option(help="Use these derived critiques, not the run's own.")
    ] = None,
    derived_name: NewName = None,
    lake: Lake = DEFAULT_LAKE,
    as_json: AsJson = False,
) -> None:
    """Make pairs or demonstrations from a run's stored rows under another rule."""
    from ..lake.derive.derivation_request import DerivationRequest
    from ..lake.derive.rederive import rederive
    from ..lake.query.runs import open_run
    from ..run.terminal import say

    wanted = DerivationRequest(
        rule=rule,
        table=table,
        top_k=top_k,
        distinct=distinct_positives,
        people=people,
        agreement=agreement,
        seed=seed,
        iteration=iteration,
        critiques=critiques,
        name=derived_name,
    )
    with exit_codes():
        run = open_run(lake, name)
        told = rederive(run, wanted)
        run.close()
    lineage = told.derived.lineage
    made = lineage["table"]
    _tell(told, f"{lineage['rows'][made]} {made}", lineage["found"]["outcomes"], as_json=as_json)
    say(f"`lpfloop train {name} --pairs {told.derived.name}{in_lake(lake)}` trains from them")


def reparse(
    name: RunArgument,
    *,
    derived_name: NewName = None,
    lake: Lake = DEFAULT_LAKE,
    as_json: AsJson = False,
) -> None:
    """Parse the stored critiques of a run again with the present parser."""
    from ..lake.derive.reparse import reparse
    from ..lake.query.runs import open_run
    from ..run.terminal import say

    with exit_codes():
        run = open_run(lake, name)
        told = reparse(run, derived_name)
        run.close()
    lineage = told.derived.lineage
    found = {key: value for key, value in lineage["found"].items() if key != "statuses"}
    _tell(told, f"{lineage['rows']['critiques']} critiques", found, as_json=as_json)
    say(
        f"`lpfloop rederive {name} --rule RULE --critiques {told.derived.name}{in_lake(lake)}` "
        "pairs by them"
    )


def train(
    name: RunArgument,
    *,
    pairs: Annotated[str, typer.Option(help="Name of a derived table of pairs or demonstrations.")],
    child: Annotated[
        str | None, typer.Option("--run", help="Name of the new run; default: RUN-NAME.")
    ] = None,
    iteration: Annotated[
        int | None, typer.Option(min=1, help="Rows of iteration T; default: the last.")
    ] = None,
    lake: Lake = DEFAULT_LAKE,
) -> None:
    """Train a new run's policy from a derived table, and evaluate it before and after."""
    from ..daemon.training_job import training_job

    with exit_codes():
        job = training_job(lake, name, pairs, child=child, iteration=iteration)
        work_on(job, stop_signal(job.config), None)


def derived(
    name: RunArgument,
    *,
    lake: Lake = DEFAULT_LAKE,
    form: AsForm = Form.AUTO,
    as_json: AsJson = False,
) -> None:
    """List the derived tables of a run."""
    import polars as pl

    from ..lake.derive.derivation import COLUMNS, derived_rows
    from ..lake.query.row_output import write_frame
    from ..lake.query.runs import open_run

    with exit_codes():
        run = open_run(lake, name)
        rows = derived_rows(run)
        run.close()
        columns = ("name", "table", "rows", "rule", "top_k", "created")
        write_frame(pl.DataFrame(rows, schema=COLUMNS), form, columns, as_json=as_json)


def _tell(told: "Told", made: str, counts: dict[str, int], *, as_json: bool) -> None:
    """Print what was made, and counts by kind."""
    from ..data.sanitize import visible
    from .tables import print_json

    if as_json:
        print_json(told.as_json())
        return
    was = "was there already, with" if told.again else "holds"
    typer.echo(visible(f"{told.derived.name} {was} {made}"))
    for key, count in counts.items():
        typer.echo(f"{count:>12,}  {key.replace('_', ' ')}")
