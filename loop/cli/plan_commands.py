"""Commands before a run: `preview`, `doctor`, `prepare`, and the plan of a dry run."""

import os
import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from ...stores.address import DEFAULT_LAKE, in_lake
from ..daemon.run_request import RunOptions
from .common import Exit
from .options import (
    DocumentOutput,
    Lake,
    Output,
    RunName,
)

if TYPE_CHECKING:
    from ..daemon.job import Job


def print_plan(job: "Job", out: Output) -> None:
    """Print the plan of a run, without beginning it."""
    from ...configs.secrecy import hide_environment, hide_secrets_of
    from ..daemon.planning import dry_plan, plan_lines

    hide_environment()
    hide_secrets_of(job.config)
    plan = dry_plan(job)
    out.document(plan.as_json(), lambda: typer.echo("\n".join(plan_lines(plan))))


OneStage = Annotated[
    str | None,
    typer.Option("--stage", help="Only this stage, or the stages of a verb such as critique."),
]
Requests = Annotated[
    int, typer.Option("--limit", min=1, max=8, help="At most N requests of each stage.")
]


def preview(
    *,
    options: Annotated[RunOptions, "config recipe iterations prompts policy critic seed settings"],
    lake: Lake = DEFAULT_LAKE,
    stage: OneStage = None,
    count: Requests = 1,
) -> None:
    """Show the requests that a run would send, without sending them.

    Real requests of each stage, as the models would read them; nothing is sent.
    """
    from ...configs.mistakes import did_you_mean, list_names
    from ...configs.schema import ConfigError
    from ...configs.secrecy import hide_environment, hide_secrets_of
    from ..daemon.job import Job
    from ..daemon.loop import required_prompts
    from ..daemon.planning import dry_rehearsal
    from ..daemon.preview import EXCERPT, preview_lines, stages_of

    config = options.in_lake(lake).resolve()
    hide_environment()
    hide_secrets_of(config)
    job = Job(config=config, lake=lake, name="preview")
    rehearsal = dry_rehearsal(job, required_prompts(config, lake), longest=EXCERPT)
    known = stages_of(rehearsal)
    if stage is not None and not any(stage in (n, n.partition(":")[0]) for n in known):
        raise ConfigError(
            f"--stage {stage}: {did_you_mean(stage, known)}this run has {list_names(known)}"
        )
    for line in preview_lines(rehearsal, stage, count):
        typer.echo(line)


def doctor(
    *,
    options: Annotated[RunOptions, "config recipe prompts policy critic settings download"],
    lake: Lake = DEFAULT_LAKE,
    out: DocumentOutput,
) -> None:
    """Check whether `lpfloop run` would start here."""
    from ...configs.secrecy import hide_environment, hide_secrets_of
    from ..daemon.doctor import diagnose

    options = options.in_lake(lake)
    loaded = options.resolve()
    hide_environment()
    hide_secrets_of(loaded)
    diagnosis = diagnose(loaded, lake, options.name_of(loaded))
    typer.echo(diagnosis.as_json() if out.as_json else diagnosis.as_text())
    if not diagnosis.ok:
        raise typer.Exit(Exit.FAULT)


SMOL = "smol"
Method = Annotated[
    str, typer.Argument(help="A method (rlrf), or smol: a real model's weights.", metavar="WHAT")
]


def prepare(
    method: Method,
    *,
    options: Annotated[RunOptions, "config prompts policy critic settings"],
    name: RunName = None,
    lake: Lake = DEFAULT_LAKE,
) -> None:
    """Train M_0, critic and reward model for a method. `smol` fetches SmolLM2-135M-Instruct.

    --policy is the base model, --critic the teacher whose critiques and better answers are learned.
    Each recipe is a separate run with the recipe's name; the same command continues it.
    """
    from ..daemon.preparing import prepare as make
    from ..daemon.preparing import prepared_recipes
    from ..daemon.suite import Suite
    from ..lake.query.forms import FormError
    from ..run.terminal import say
    from ..smol.weights import prepare_weights
    from .session import turn

    if method == SMOL:
        if name or options != RunOptions():
            raise FormError("prepare smol only fetches weights: leave the options out")
        prepare_weights(say)
        say("run it with\n  lpfloop run --config smol --iterations 2")
        return
    options = options.in_lake(lake)
    suite = Suite(
        config=options.preset,
        recipes=prepared_recipes(method),
        seeds=(),
        lake=lake,
        prefix=name or options.stem,
        overrides=tuple(options.overrides),
        env=os.environ,
    )

    made = make(suite, turn, say)
    words = ["lpfloop", "run", "--config", str(options.preset or "tiny")]
    words += ["--prompts", options.prompts] if options.prompts else []
    words += ["--policy", made.policy, "--critic", made.policy]
    words += ["--set", f"reward.model={made.reward}", "--set", "injection_guard=false"]
    say(f"made: run the method with\n  {shlex.join(words)}{in_lake(lake)}")
