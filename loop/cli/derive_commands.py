"""Commands that derive tables from stored rows without a model, and train from them."""

from contextlib import closing
from dataclasses import replace
from typing import Annotated, Literal

import typer

from ...stores.address import DEFAULT_LAKE, in_lake
from ..daemon.run_request import RunOptions
from .common import chosen_run
from .options import (
    AnyRun,
    Derived,
    DocumentOutput,
    Lake,
    OneIteration,
    Seed,
)
from .session import stop_signal, work_on

NewName = Annotated[
    str | None,
    typer.Option("--name", help="Name of the new derived table; default: made of the options."),
]


def rebuild_pairs(
    name: AnyRun = None,
    *,
    rule: Annotated[
        str,
        typer.Option(
            help="Pairing rule, such as success_vs_failure, top_reward or mean-vs-random."
        ),
    ],
    top_k: Annotated[
        int | None,
        typer.Option(min=1, help="Chosen answers for each prompt; default: the run's own."),
    ] = None,
    distinct: Annotated[
        bool | None,
        typer.Option(help="Choose no text twice for a prompt; default: the run's own."),
    ] = None,
    people: Annotated[
        Literal["decide", "ignored"] | None,
        typer.Option(help="What ratings by people count for; default: the run's own."),
    ] = None,
    agreement: Annotated[
        Literal["all", "mean"] | None,
        typer.Option(
            help="How several critiques of an answer are combined; default: the run's own."
        ),
    ] = None,
    iteration: OneIteration = None,
    seed: Seed = None,
    table: Annotated[
        str | None,
        typer.Option(help="Table to make: pairs or demonstrations; default: what the rule makes."),
    ] = None,
    critiques: Derived = None,
    again: Annotated[
        bool,
        typer.Option(
            "--reparse",
            help="First read the stored replies of critics again, into the derived table of "
            "--derived (default: reparsed), and pair by these.",
        ),
    ] = False,
    derived_name: NewName = None,
    lake: Lake = DEFAULT_LAKE,
    out: DocumentOutput,
) -> None:
    """Make other pairs from a run's rows, without a model.

    Pairs or demonstrations by another rule; they are stored as a derived table.
    """
    from ..data.text import visible
    from ..lake.derive.rebuild_pairs import DerivationRequest, rebuild_pairs
    from ..lake.derive.reparse import reparse
    from ..lake.query.runs import open_run
    from ..run.terminal import say

    request = DerivationRequest(
        rule=rule,
        table=table,
        top_k=top_k,
        distinct=distinct,
        people=people,
        agreement=agreement,
        seed=seed,
        iteration=iteration,
        critiques=critiques,
        name=derived_name,
    )
    name = chosen_run(lake, name, tell=True)
    with closing(open_run(lake, name)) as run:
        if again:
            read = reparse(run, critiques)
            request = replace(request, critiques=read.derived.name)
            counts = read.derived.lineage["found"]
            changes = ", ".join(
                f"{count:,} {key.replace('_', ' ')}"
                for key, count in counts.items()
                if key != "statuses"
            )
            say(f"{read.derived.name}: {changes}")
        result = rebuild_pairs(run, request)
    lineage = result.derived.lineage
    made = lineage["table"]
    was = "was there already, with" if result.again else "holds"
    lines = [f"{result.derived.name} {was} {lineage['rows'][made]} {made}"]
    lines += [
        f"{count:>12,}  {outcome.replace('_', ' ')}"
        for outcome, count in lineage["found"]["outcomes"].items()
    ]
    out.document(result.as_json(), lambda: typer.echo(visible("\n".join(lines))))
    say(f"`lpfloop train {name} --derived {result.derived.name}{in_lake(lake)}` trains from them")


def train(
    name: AnyRun = None,
    *,
    pairs: Annotated[
        str | None,
        typer.Option("--derived", help="Read this derived table: it holds the rows to train on."),
    ] = None,
    reward: Annotated[
        bool, typer.Option("--reward", help="Reward model: train one on the pairs, and no policy.")
    ] = False,
    child: Annotated[
        str | None, typer.Option("--run", help="Name of the run that is made; default: RUN-TABLE.")
    ] = None,
    iteration: OneIteration = None,
    options: Annotated[RunOptions, "config prompts policy settings"],
    lake: Lake = DEFAULT_LAKE,
) -> None:
    """Train a model on pairs that are stored, as a new run.

    The pairs come from a derived table, or from an imported run for the policy in --policy.
    """
    from ..daemon.training_job import TrainingRequest, training_job

    request = TrainingRequest(
        derived=pairs, iteration=iteration, reward=reward, name=child, options=options
    )
    name = chosen_run(lake, name, tell=True)
    job = training_job(lake, name, request)
    work_on(job, stop_signal(job.config), None)
