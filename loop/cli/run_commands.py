"""Commands that run the loop: `demo`, `run` and `resume`."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from ...stores.address import DEFAULT_LAKE, in_lake
from ..daemon.run_request import TINY, RunOptions
from .common import (
    AnyRun,
    Exit,
    Lake,
    Settings,
    chosen_run,
)
from .output import DocumentOutput, Output
from .run_options import (
    COMPARE,
    OUTPUT,
    RESUME,
    ConfigName,
    Critic,
    Download,
    Iterations,
    Policy,
    PromptsFile,
    RecipeName,
    RunName,
    Seed,
)
from .session import compare_recipes, stop_signal, work_on
from .word_completion import run_names

USAGE = """\
Usage: lpfloop run --policy MODEL --prompts FILE --critic JUDGE [OPTIONS]

Say what to run. There are two ways to start:
  lpfloop demo    two iterations on toy models that come with lpfloop: 2 CPU cores, about 4 minutes
  lpfloop run --policy Qwen/Qwen2.5-1.5B-Instruct --prompts prompts.jsonl \\
      --critic http://localhost:8000/v1 --iterations 2 --download
                  your own model; `lpfloop init` writes these settings to a file for --config

`lpfloop run --help` lists all options."""
DEMO_ITERATIONS = 2

Detach = Annotated[
    bool,
    typer.Option("--detach", help="Run in the background; see `status`.", rich_help_panel=RESUME),
]
ForkOf = Annotated[
    str | None,
    typer.Option(
        "--reuse-from",
        help="Reuse the finished work of this run that the settings still allow.",
        autocompletion=run_names,
        rich_help_panel=RESUME,
    ),
]
RecipeNames = Annotated[
    str | None,
    typer.Option(
        help="Run several recipes from the same start, and compare them: all, or NAME,NAME.",
        rich_help_panel=COMPARE,
    ),
]
Seeds = Annotated[
    int,
    typer.Option(
        min=1,
        help="How many seeds from --seed on; for --recipes.",
        rich_help_panel=COMPARE,
    ),
]
PolicyTokens = Annotated[
    int | None,
    typer.Option(
        "--policy-tokens",
        min=1,
        help="With --recipes: the tokens that each method's policy may generate to learn from.",
        rich_help_panel=COMPARE,
    ),
]
Trials = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="With --policy-tokens: settings to try of each method, on dev prompts; 3.",
        rich_help_panel=COMPARE,
    ),
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Print the plan of the run and stop.", rich_help_panel=OUTPUT),
]
Announce = Annotated[int | None, typer.Option("--announce", hidden=True)]


def demo(
    *,
    recipe: RecipeName = None,
    iterations: Iterations = DEMO_ITERATIONS,
    name: RunName = None,
    lake: Lake = DEFAULT_LAKE,
    seed: Seed = None,
    settings: Settings = None,
    detach: Detach = False,
    dry_run: DryRun = False,
) -> None:
    """Try lpfloop on toy models: two iterations, about four minutes.

    The models come with lpfloop: no GPU and no network are needed. The same command continues it.
    """
    run(
        config=TINY,
        recipe=recipe,
        iterations=iterations,
        name=name,
        lake=lake,
        seed=seed,
        settings=settings,
        detach=detach,
        dry_run=dry_run,
        out=Output(),
    )


def run(
    *,
    config: ConfigName = None,
    recipe: RecipeName = None,
    recipes: RecipeNames = None,
    seeds: Seeds = 1,
    policy_tokens: PolicyTokens = None,
    trials: Trials = None,
    iterations: Iterations = None,
    name: RunName = None,
    lake: Lake = DEFAULT_LAKE,
    prompts: PromptsFile = None,
    policy: Policy = None,
    critic: Critic = None,
    seed: Seed = None,
    settings: Settings = None,
    fork: ForkOf = None,
    download: Download = False,
    detach: Detach = False,
    dry_run: DryRun = False,
    out: DocumentOutput,
    announce: Announce = None,
) -> None:
    """Train your model in the loop, or continue a run of the same name.

    Example: lpfloop run --policy Qwen/Qwen2.5-1.5B-Instruct --prompts prompts.jsonl --critic
    http://localhost:8000/v1 --iterations 2

    It begins with its plan and a smoke test. Exit codes: 0 done, 1 a fault, 2 bad input, 3 stopped
    cleanly, 4 nothing to train on, 5 worse than before.
    """
    from .equal_commands import compare_at_equal_tokens, require_together
    from .plan_commands import print_plan, refuse_json

    options = RunOptions(
        config=config,
        recipe=recipe,
        iterations=iterations,
        prompts=prompts,
        policy=policy,
        critic=critic,
        seed=seed,
        settings=settings or (),
        download=download,
    )
    refuse_secrets(settings or ())
    if not (options.describes_a_run or recipes or fork):
        typer.echo(USAGE, err=True)
        raise typer.Exit(Exit.BAD_INPUT)
    refuse_json(as_json=out.as_json, dry_run=dry_run)
    _refuse_dropped(dry_run=dry_run, detach=detach, alone=not recipes, seeds=seeds)
    require_together(policy_tokens, trials, several=recipes is not None)
    options = options.in_lake(lake)
    if recipes is not None:
        alone = {"--recipe": recipe, "--reuse-from": fork, "--detach": detach or None}
        alone |= {"--download": download or None, "--dry-run": dry_run or None}
        _refuse_beside(alone)
        from ..daemon.suite import Suite, chosen_recipes

        equal = None if policy_tokens is None else "equal"
        suite = Suite(
            config=options.preset,
            recipes=chosen_recipes(recipes) if policy_tokens is None else (),
            seeds=tuple(range(seed or 0, (seed or 0) + seeds)),
            lake=lake,
            prefix=name or "-".join(filter(None, (options.stem, equal))),
            overrides=tuple(options.overrides),
            env=os.environ,
        )
        if policy_tokens is None:
            compare_recipes(suite)
        else:
            compare_at_equal_tokens(suite, recipes, policy_tokens, trials)
        return
    from ..daemon.job import Job

    loaded = options.resolve()
    name = name or options.name_of(loaded)
    if detach and not dry_run:
        words = [f"--set={item}" for item in settings or ()]
        given = {"config": options.preset, "recipe": recipe, "run": name, "lake": lake}
        given |= {"prompts": prompts, "policy": options.policy, "critic": options.critic}
        given |= {"iterations": iterations, "seed": seed, "fork": fork}
        _detach(["run", *_as_options(given), *words], name, lake)
        return
    job = Job(config=loaded, lake=lake, name=name, fork=fork)
    if dry_run:
        print_plan(job, as_json=out.as_json)
    else:
        work_on(job, stop_signal(loaded), announce)


def _refuse_dropped(*, dry_run: bool, detach: bool, alone: bool, seeds: int) -> None:
    """Refuse options that would have no effect."""
    from ...configs.schema import ConfigError

    if dry_run and detach:
        raise ConfigError(
            "--dry-run begins no run that --detach could leave: leave one of them out"
        )
    if alone and seeds != 1:
        raise ConfigError("--seeds is for --recipes: name the seed of one run with --seed")


def _refuse_beside(options: Mapping[str, object]) -> None:
    from ...configs.schema import ConfigError

    for option, value in options.items():
        if value is not None:
            raise ConfigError(
                f"--recipes runs several recipes here, one by one: leave out {option}"
            )


def resume(
    name: AnyRun = None,
    *,
    lake: Lake = DEFAULT_LAKE,
    iterations: Iterations = None,
    max_tokens: Annotated[int | None, typer.Option(min=0, help="Raise budget.tokens.")] = None,
    max_judge_calls: Annotated[
        int | None, typer.Option(min=0, help="Raise budget.judge_calls.")
    ] = None,
    max_money: Annotated[float | None, typer.Option(min=0, help="Raise budget.money.")] = None,
    max_hours: Annotated[float | None, typer.Option(min=0, help="Raise budget.hours.")] = None,
    max_disk_gib: Annotated[
        float | None, typer.Option(min=0, help="Raise budget.disk_gib.")
    ] = None,
    on_alarm: Annotated[
        str | None,
        typer.Option(
            metavar="continue|stop", help="What to do after an alarm that stopped the run."
        ),
    ] = None,
    retry_unscored: Annotated[
        bool, typer.Option("--retry-unscored", help="Ask again about unreadable replies.")
    ] = False,
    detach: Detach = False,
    announce: Announce = None,
) -> None:
    """Continue a paused or interrupted run.

    Uses the stored configuration and repeats no finished work. If the run is paused in another
    process, that process continues.
    """
    from ..daemon.resuming import raised_limits, resumption
    from ..run.terminal import say
    from .critique_commands import work_on_answers

    limits = {
        "max_tokens": max_tokens,
        "max_judge_calls": max_judge_calls,
        "max_money": max_money,
        "max_hours": max_hours,
        "max_disk_gib": max_disk_gib,
        "iterations": iterations,
        "on_alarm": on_alarm,
    }
    name = chosen_run(lake, name, tell=True)
    found = resumption(lake, name, raised_limits(limits), retry_unscored=retry_unscored)
    if found.job is not None and detach:
        options = {"lake": lake} | {option.replace("_", "-"): limits[option] for option in limits}
        flag = ["--retry-unscored"] if retry_unscored else []
        name = found.job.name
        _detach(["resume", name, *_as_options(options), *flag], name, lake)
        return
    for line in found.notes:
        say(line)
    if found.job is None:
        typer.echo(f"{found.daemon} running")
    elif found.job.answers is None:
        work_on(found.job, stop_signal(found.job.config, lift_pause=True), announce)
    else:
        work_on_answers(found.job, lift_pause=True, announce=announce)


def refuse_secrets(settings: "Sequence[str]") -> None:
    """Refuse a key on the command line, which every user of the machine can read."""
    from ...configs.describe import fields
    from ...configs.schema import ConfigError

    secret = {field.path.rpartition(".")[2] for field in fields() if field.secret}
    for text in settings:
        path = text.removeprefix("--set=").partition("=")[0].strip()
        if path.rpartition(".")[2] in secret:
            raise ConfigError(
                f"--set {path}: a command line can be read by every user of this machine; set the "
                "environment variable LPFLOOP_API_KEY instead"
            )


def _as_options(options: Mapping[str, object]) -> list[str]:
    return [f"--{name}={value}" for name, value in options.items() if value is not None]


def _detach(arguments: "Sequence[str]", name: str, lake: Path) -> None:
    """Start a daemon; return when it holds the run, or exit with its code."""
    from ..daemon.detach import start
    from ..run.terminal import say

    started = start(arguments)
    if started.talk:
        say(started.talk)
    if started.code is not None:
        raise typer.Exit(started.code)
    typer.echo(f"{started.pid} {name}")
    say(
        f"run {name} goes on as process {started.pid}; `lpfloop watch {name}{in_lake(lake)}` shows "
        f"it, `lpfloop stop {name}{in_lake(lake)}` ends it"
    )
