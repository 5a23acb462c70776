"""What a run would do, before it does anything: its plan, and its requests as they are sent."""

from typing import TYPE_CHECKING, Annotated

import typer

from ...stores.address import DEFAULT_LAKE
from ..daemon.run_request import RunOptions
from .common import AsJson, Lake, Settings, exit_codes
from .run_options import (
    ConfigName,
    Critic,
    Iterations,
    Policy,
    PromptsFile,
    Seed,
    Variant,
)

if TYPE_CHECKING:
    from pathlib import Path

    from ...configs.schema import RunConfig
    from ..daemon.job import Job


def refuse_json(*, as_json: bool, dry_run: bool) -> None:
    """Refuse `--json` where there is no document to print."""
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
    variant: Variant = None,
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
    """Show what the models would be asked, without asking.

    Real requests of each stage, as the models would read them; nothing is sent.
    """
    options = RunOptions(
        config=config,
        variant=variant,
        iterations=iterations,
        prompts=prompts,
        policy=policy,
        critic=critic,
        seed=seed,
        settings=settings or (),
    )
    with exit_codes():
        _print_preview(options.in_lake(lake).resolved(), lake, stage, count)


PromptCount = Annotated[
    int | None,
    typer.Option("--prompt-count", min=1, help="So many prompts to train on in an iteration."),
]
GpuCount = Annotated[int, typer.Option("--gpu-count", min=1, help="Number of GPUs.")]
Answers = Annotated[
    int, typer.Option("--drawn-s", min=1, help="Tokens a GPU draws in a second, of an 8B model.")
]
Reading = Annotated[
    int, typer.Option("--read-s", min=1, help="Tokens a GPU reads in a second, of an 8B model.")
]
Training = Annotated[
    int,
    typer.Option("--trained-s", min=1, help="Tokens a GPU trains on in a second, of an 8B model."),
]
AnswerTokens = Annotated[
    int,
    typer.Option("--answer-tokens", min=1, help="Length of an answer, if none was measured."),
]
PromptTokens = Annotated[
    int,
    typer.Option("--prompt-tokens", min=1, help="Length of a prompt, where there is no file."),
]
GpuPrice = Annotated[
    float, typer.Option("--gpu-hour", min=0, help="Price of an hour of a GPU, in US dollars.")
]


def scale(
    *,
    config: ConfigName = None,
    variant: Variant = None,
    iterations: Iterations = None,
    lake: Lake = DEFAULT_LAKE,
    prompts: PromptsFile = None,
    policy: Policy = None,
    critic: Critic = None,
    settings: Settings = None,
    prompt_count: PromptCount = None,
    gpu_count: GpuCount = 8,
    drawn_s: Answers = 2000,
    read_s: Reading = 30_000,
    trained_s: Training = 5800,
    answer_tokens: AnswerTokens = 300,
    prompt_tokens: PromptTokens = 150,
    gpu_hour: GpuPrice = 2.5,
    as_json: AsJson = False,
) -> None:
    """Compute what a run would take, of any number of prompts.

    Tokens, GPU-hours, rows, bytes, the journal, money; and what gives way first. Nothing is asked.
    """
    options = RunOptions(
        config=config,
        variant=variant,
        iterations=iterations,
        prompts=prompts,
        policy=policy,
        critic=critic,
        settings=settings or (),
    )
    with exit_codes():
        from ...configs.secrecy import hide_environment, hide_secrets_of
        from ..daemon.scale import Rates
        from ..daemon.scale_lines import scale_lines
        from ..daemon.scale_run import scaled
        from .tables import print_json

        rates = Rates(
            gpus=gpu_count,
            drawn_s=drawn_s,
            read_s=read_s,
            trained_s=trained_s,
            answer_tokens=answer_tokens,
            prompt_tokens=prompt_tokens,
            gpu_hour=gpu_hour,
        )
        hide_environment()
        resolved = options.in_lake(lake).loaded()
        hide_secrets_of(resolved)
        found = scaled(resolved, lake, rates, prompt_count)
        if as_json:
            print_json(found.as_json())
            return
        for line in scale_lines(found):
            typer.echo(line)


def _print_preview(config: "RunConfig", lake: "Path", stage: str | None, count: int) -> None:
    from ...configs.likely_names import listed, meant
    from ...configs.schema import ConfigError
    from ...configs.secrecy import hide_environment, hide_secrets_of
    from ..daemon.planning import dry_rehearsal
    from ..daemon.preview import preview_lines, stages_of

    hide_environment()
    hide_secrets_of(config)
    rehearsal = dry_rehearsal(config, lake)
    known = stages_of(rehearsal)
    if stage is not None and not any(stage in (n, n.partition(":")[0]) for n in known):
        raise ConfigError(f"--stage {stage}: {meant(stage, known)}this run has {listed(known)}")
    for line in preview_lines(rehearsal, stage, count):
        typer.echo(line)
