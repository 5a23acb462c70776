"""Commands that run the loop: `demo`, `run` and `resume`."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from ...stores.address import DEFAULT_LAKE, in_lake
from ..daemon.run_request import TINY, RunOptions
from .common import Exit, chosen_run
from .options import (
    COMPARE,
    OUTPUT,
    RESUME,
    AnyRun,
    DocumentOutput,
    Lake,
    Output,
    RunName,
    run_names,
)
from .session import stop_signal, work_on

USAGE = """\
Usage: lpfloop run --policy MODEL --prompts FILE --critic JUDGE [OPTIONS]

Say what to run. There are two ways to start:
  lpfloop demo    two iterations on toy models that come with lpfloop: 2 CPU cores, about 3 minutes
  lpfloop run --policy Qwen/Qwen2.5-1.5B-Instruct --prompts prompts.jsonl \\
      --critic http://localhost:8000/v1 --iterations 2 --download
                  your own model; `lpfloop config show` prints these settings for a --config file

`lpfloop run --help` lists all options."""

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
        max=4,
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
    options: Annotated[RunOptions, "recipe iterations seed settings"] = RunOptions(iterations=2),
    name: RunName = None,
    lake: Lake = DEFAULT_LAKE,
    detach: Detach = False,
    dry_run: DryRun = False,
) -> None:
    """Try lpfloop on toy models: two iterations, about three minutes.

    The models come with lpfloop: no GPU and no network are needed. The same command continues it.
    """
    options = replace(options, config=TINY)
    run(options=options, name=name, lake=lake, detach=detach, dry_run=dry_run, out=Output())


def run(
    *,
    options: Annotated[
        RunOptions, "config recipe iterations prompts policy critic seed settings download"
    ],
    recipes: RecipeNames = None,
    seeds: Seeds = 1,
    policy_tokens: PolicyTokens = None,
    trials: Trials = None,
    name: RunName = None,
    lake: Lake = DEFAULT_LAKE,
    fork: ForkOf = None,
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
    from .compare_commands import compare_at_equal_tokens, compare_recipes
    from .plan_commands import print_plan

    if not (options.describes_a_run or recipes or fork):
        typer.echo(USAGE, err=True)
        raise typer.Exit(Exit.BAD_INPUT)
    given = {"recipes": recipes, "policy-tokens": policy_tokens, "trials": trials}
    given |= {"reuse-from": fork, "detach": detach, "dry-run": dry_run}
    _refuse_together(options, given, seeds=seeds, as_json=out.as_json)
    options = options.in_lake(lake)
    if recipes is not None:
        from ..daemon.suite import Suite, chosen_recipes

        equal, first = None if policy_tokens is None else "equal", options.seed or 0
        suite = Suite(
            config=options.preset,
            recipes=chosen_recipes(recipes) if policy_tokens is None else (),
            seeds=tuple(range(first, first + seeds)),
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
        words = [f"--set={item}" for item in options.settings]
        given = {"config": options.preset, "recipe": options.recipe, "run": name, "lake": lake}
        given |= {"prompts": options.prompts, "policy": options.policy, "critic": options.critic}
        given |= {"iterations": options.iterations, "seed": options.seed, "reuse-from": fork}
        _detach(["run", *_as_options(given), *words], name, lake)
        return
    job = Job(config=loaded, lake=lake, name=name, fork=fork)
    if dry_run:
        print_plan(job, out)
    else:
        work_on(job, stop_signal(loaded), announce)


def _refuse_together(
    options: RunOptions,
    given: Mapping[str, object],
    *,
    seeds: int,
    as_json: bool,
) -> None:
    """Refuse options that would have no effect together with others; `given` are by name."""
    from ...configs.mistakes import ConfigError

    several, budget = given["recipes"] is not None, given["policy-tokens"]
    alone = {"recipe": options.recipe, "download": options.download}
    alone |= {name: given[name] for name in ("reuse-from", "detach", "dry-run")}
    alone_only = next((name for name, value in alone.items() if value), None) if several else None
    refusals = (
        (
            as_json and not given["dry-run"],
            "--json prints a plan: add --dry-run, or read `lpfloop status --json`",
        ),
        (
            given["dry-run"] and given["detach"],
            "--dry-run begins no run that --detach could leave: leave one of them out",
        ),
        (
            seeds != 1 and not several,
            "--seeds is for --recipes: name the seed of one run with --seed",
        ),
        (
            given["trials"] and budget is None,
            "--trials is for methods at equal tokens: add --policy-tokens N",
        ),
        (
            budget is not None and not several,
            "--policy-tokens gives several methods one budget: name them by --recipes",
        ),
        (alone_only, f"--recipes runs several recipes here, one by one: leave out --{alone_only}"),
    )
    for refused, why in refusals:
        if refused:
            raise ConfigError(why)


def resume(
    name: AnyRun = None,
    *,
    lake: Lake = DEFAULT_LAKE,
    options: Annotated[RunOptions, "iterations settings"],
    retry_unscored: Annotated[
        bool, typer.Option("--retry-unscored", help="Ask again about unreadable replies.")
    ] = False,
    detach: Detach = False,
    announce: Announce = None,
) -> None:
    """Continue a paused or interrupted run.

    Uses the stored configuration and repeats no finished work; --set raises a budget
    (budget.tokens=N) or changes another setting that made no row. If the run is paused in another
    process, that process continues.
    """
    from ..daemon.resuming import resumption
    from ..run.terminal import say
    from .critique_commands import work_on_answers

    name = chosen_run(lake, name, tell=True)
    found = resumption(lake, name, options.overrides, retry_unscored=retry_unscored)
    if found.job is not None and detach:
        words = [f"--set={item}" for item in options.settings]
        words += ["--retry-unscored"] if retry_unscored else []
        given, name = {"lake": lake, "iterations": options.iterations}, found.job.name
        _detach(["resume", name, *_as_options(given), *words], name, lake)
        return
    for line in found.notes:
        say(line)
    if found.job is None:
        typer.echo(f"{found.daemon} running")
    elif found.job.answers is None:
        work_on(found.job, stop_signal(found.job.config, lift_pause=True), announce)
    else:
        work_on_answers(found.job, lift_pause=True, announce=announce)


def _as_options(options: Mapping[str, object]) -> list[str]:
    return [f"--{name}={value}" for name, value in options.items() if value is not None]


def _detach(arguments: "Sequence[str]", name: str, lake: Path) -> None:
    """Start a daemon; return when it holds the run, or exit with its code."""
    from ..daemon.child_run import start
    from ..run.terminal import say

    started = start(arguments)
    if started.talk:
        say(started.talk)
    if started.code is not None:
        raise typer.Exit(started.code)
    typer.echo(f"{started.pid} {name}")
    say(
        f"run {name} continues as process {started.pid}; `lpfloop watch {name}{in_lake(lake)}` "
        f"shows it, `lpfloop stop {name}{in_lake(lake)}` ends it"
    )
