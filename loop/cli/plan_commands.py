"""A preview of a run: its plan, and its requests as they are sent."""

from typing import TYPE_CHECKING, Annotated

import typer

from ...stores.address import DEFAULT_LAKE
from ..daemon.run_request import RunOptions
from .common import Lake, Settings
from .run_options import (
    ConfigName,
    Critic,
    Iterations,
    Policy,
    PromptsFile,
    RecipeName,
    Seed,
)

if TYPE_CHECKING:
    from pathlib import Path

    from ...configs.schema import RunConfig
    from ..daemon.job import Job


def refuse_json(*, as_json: bool, dry_run: bool) -> None:
    """Refuse `--json` without a document to print."""
    from ...configs.schema import ConfigError

    if as_json and not dry_run:
        raise ConfigError("--json prints a plan: add --dry-run, or read `lpfloop status --json`")


def print_plan(job: "Job", *, as_json: bool) -> None:
    """Print the plan of a run, without beginning it."""
    from ...configs.secrecy import hide_environment, hide_secrets_of
    from ..daemon.plan_lines import plan_lines
    from ..daemon.planning import dry_plan
    from .tables import print_json

    hide_environment()
    hide_secrets_of(job.config)
    plan = dry_plan(job)
    if as_json:
        print_json(plan.as_json())
        return
    for line in plan_lines(plan):
        typer.echo(line)


OneStage = Annotated[
    str | None,
    typer.Option("--stage", help="Only this stage, or the stages of a verb such as critique."),
]
Requests = Annotated[
    int, typer.Option("--limit", min=1, max=8, help="At most N requests of each stage.")
]


def preview(
    *,
    config: ConfigName = None,
    recipe: RecipeName = None,
    iterations: Iterations = None,
    lake: Lake = DEFAULT_LAKE,
    prompts: PromptsFile = None,
    policy: Policy = None,
    critic: Critic = None,
    seed: Seed = None,
    settings: Settings = None,
    stage: OneStage = None,
    count: Requests = 1,
) -> None:
    """Show the requests that a run would send, without sending them.

    Real requests of each stage, as the models would read them; nothing is sent.
    """
    options = RunOptions(
        config=config,
        recipe=recipe,
        iterations=iterations,
        prompts=prompts,
        policy=policy,
        critic=critic,
        seed=seed,
        settings=settings or (),
    )
    _print_preview(options.in_lake(lake).resolve(), lake, stage, count)


def _print_preview(config: "RunConfig", lake: "Path", stage: str | None, count: int) -> None:
    from ...configs.mistakes import did_you_mean, list_names
    from ...configs.schema import ConfigError
    from ...configs.secrecy import hide_environment, hide_secrets_of
    from ..daemon.job import Job
    from ..daemon.loop import required_prompts
    from ..daemon.planning import dry_rehearsal
    from ..daemon.preview import EXCERPT, preview_lines, stages_of

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
