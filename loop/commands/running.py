"""Commands that run the loop: `run`, `resume`, and `launch slurm` for a cluster."""

import json
import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .common import DEFAULT_LAKE, Exit, Lake, RunArgument, Settings, exit_codes, in_lake

if TYPE_CHECKING:
    from ...configs.load import Override
    from ...configs.schema import RunConfig
    from ...stores.lake import RunReader
    from ..job import Job
    from ..reporter import Reporter
    from ..stop import StopSignal

PRIVATE = 0o077

ConfigName = Annotated[str | None, typer.Option("--config", help="Preset or YAML file.")]
Variant = Annotated[str | None, typer.Option(help="Recipe; see `lpfloop variants`.")]
Iterations = Annotated[int | None, typer.Option(min=0, help="Iterations to reach.")]
RunName = Annotated[str | None, typer.Option("--run", help="Name of the run.")]
PromptsFile = Annotated[str | None, typer.Option(help="Prompts: JSONL or Parquet.")]
Policy = Annotated[str | None, typer.Option(help="Model to improve: folder or URL.")]
Critic = Annotated[str | None, typer.Option(help="Feedback model: folder or URL.")]
Seed = Annotated[int | None, typer.Option(min=0, help="Root of all random numbers.")]
Detach = Annotated[bool, typer.Option("--detach", help="Go on as a daemon; see `status`.")]
ForkOf = Annotated[
    str | None, typer.Option("--fork", help="Re-use the units of this run that still hold.")
]
Announce = Annotated[int | None, typer.Option("--announce", hidden=True)]


def run(
    *,
    config: ConfigName = None,
    variant: Variant = None,
    iterations: Iterations = None,
    name: RunName = None,
    lake: Lake = DEFAULT_LAKE,
    prompts: PromptsFile = None,
    policy: Policy = None,
    critic: Critic = None,
    seed: Seed = None,
    settings: Settings = None,
    fork: ForkOf = None,
    detach: Detach = False,
    announce: Announce = None,
) -> None:
    """Run the loop; the same run name again continues where it stopped."""
    from ...configs.load import Override, load_config

    given = (
        Override(source="--iterations", path="iterations", value=iterations),
        Override(source="--prompts", path="prompts.source", value=prompts),
        Override(source="--policy", path="policy.model", value=policy),
        Override(source="--critic", path="critic.model", value=critic),
        Override(source="--seed", path="seed", value=seed),
    )
    with exit_codes():
        _refuse_secrets(settings or ())
        own = config is None and any(v is not None for v in (prompts, policy, critic))
        chosen = "own" if own else config
        overrides = [override for override in given if override.value is not None]
        loaded = load_config(chosen, variant, [*overrides, *(settings or ())], os.environ)
        name = name or f"{Path(chosen or 'tiny').stem}-{loaded.recipe.name}"
        if detach:
            words = [f"--set={item}" for item in settings or ()]
            options = {"config": chosen, "variant": variant, "run": name, "lake": lake}
            options |= {"prompts": prompts, "policy": policy, "critic": critic}
            options |= {"iterations": iterations, "seed": seed, "fork": fork}
            _detached(["run", *_given(options), *words], name, lake)
        else:
            work_on(_job(loaded, lake, name, fork), stop_signal(loaded), announce)


def resume(
    name: RunArgument,
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
    detach: Detach = False,
    announce: Announce = None,
) -> None:
    """Let a paused run go on, or continue an interrupted one from its stored configuration."""
    from ...configs.load import Override, stored_config
    from ...stores.journal import migrated
    from ...stores.lake import run_folder
    from ..control import alive
    from ..imports import require_loop
    from ..reading import open_run
    from ..talk import say

    limits = {
        "max-tokens": ("budget.tokens", max_tokens),
        "max-judge-calls": ("budget.judge_calls", max_judge_calls),
        "max-money": ("budget.money", max_money),
        "max-hours": ("budget.hours", max_hours),
        "max-disk-gib": ("budget.disk_gib", max_disk_gib),
        "iterations": ("iterations", iterations),
    }
    raised = [
        Override(source=f"--{option}", path=path, value=value)
        for option, (path, value) in limits.items()
        if value is not None
    ]
    with exit_codes():
        migrated(run_folder(lake, name))
        reader = open_run(lake, name)
        require_loop(reader.journal)
        stored = json.loads(reader.journal.meta("config") or "{}")
        if alive(run_folder(lake, name)):
            reader.close()
            _lift_pause(run_folder(lake, name), raised)
            return
        config = stored_config(stored, raised, os.environ)
        if detach:
            options = {"lake": lake} | {option: value for option, (_, value) in limits.items()}
            _detached(["resume", name, *_given(options)], name, lake)
            return
        for line in _outlook(reader, config):
            say(line)
        reader.close()
        work_on(_job(config, lake, name), stop_signal(config, lift_pause=True), announce)


def _lift_pause(folder: Path, raised: "Sequence[Override]") -> None:
    """Tell the daemon that works on the run to go on, with what was raised."""
    from ...configs.schema import ConfigError
    from ..control import Resume, Set, ask
    from ..talk import say

    if any(override.path == "iterations" for override in raised):
        raise ConfigError(
            f"--iterations: a daemon works on run {folder.name}; `lpfloop stop {folder.name}` "
            "first, then resume it with more iterations"
        )
    for override in raised:
        ask(folder, Set(path=override.path, value=override.value))
        say(f"{override.path} is {override.value} from the next unit on")
    state = ask(folder, Resume())
    typer.echo(f"{state.pid} running")


def _outlook(reader: "RunReader", config: "RunConfig") -> Generator[str]:
    """Say what a resumed run has, which it will not make again, and what it is about to do."""
    from ..progress import progress

    stages = progress(reader.journal, running=False)
    done = [stage for stage in stages if stage.done]
    if done:
        yield f"re-uses {sum(stage.done for stage in done):,} units:"
    for number in sorted({stage.iteration for stage in done}):
        parts = ", ".join(f"{s.stage} {s.done}/{s.planned}" for s in done if s.iteration == number)
        yield f"  iteration {number}: {parts}"
    owed = [stage for stage in stages if stage.owed]
    last = max((stage.iteration for stage in stages), default=0)
    for stage in owed:
        yield f"will make {stage.owed:,} units of iteration {stage.iteration}, {stage.stage}"
    if last < config.iterations or owed or not stages:
        yield f"will go on to iteration {config.iterations}"
    else:
        yield f"all {config.iterations} iterations were begun; will make what is missing"


def launch(
    where: Annotated[str, typer.Argument(help="The scheduler: slurm.", metavar="slurm")],
    options: Annotated[
        list[str] | None, typer.Argument(help="Options of `lpfloop run`, after --.")
    ] = None,
    *,
    printed: Annotated[bool, typer.Option("--print", help="Print the file (sbatch reads it).")],
    name: Annotated[str, typer.Option("--run", help="Name of the run.")],
    lake: Lake = DEFAULT_LAKE,
    partition: Annotated[str | None, typer.Option(help="Partition.")] = None,
    account: Annotated[str | None, typer.Option(help="Account.")] = None,
    gpus: Annotated[int, typer.Option(min=0, help="GPUs.")] = 1,
    cpus: Annotated[int, typer.Option(min=1, help="CPU cores.")] = 8,
    mem: Annotated[str, typer.Option(help="Memory, as Slurm says it.")] = "64G",
    time: Annotated[str, typer.Option(help="Time limit, as Slurm says it.")] = "24:00:00",
) -> None:
    """Print a batch file that runs the loop on a cluster, stops it in time and goes on."""
    from ...configs.schema import ConfigError
    from ..slurm import Allocation, batch_file

    del printed
    with exit_codes():
        if where != "slurm":
            raise ConfigError(f"launch {where}: only `lpfloop launch slurm` is known")
        words = list(options or ())
        _refuse_secrets(words)
        allocation = Allocation(
            partition=partition, account=account, gpus=gpus, cpus=cpus, mem=mem, time=time
        )
        typer.echo(batch_file(name, lake, words, allocation, resumable=Exit.STOPPED), nl=False)


def _refuse_secrets(settings: "Sequence[str]") -> None:
    """Refuse a key on the command line, which every user of the machine can read."""
    from ...configs.load import fields
    from ...configs.schema import ConfigError

    secret = {field.path for field in fields() if field.secret}
    for text in settings:
        path = text.removeprefix("--set=").partition("=")[0].strip()
        if path in secret:
            raise ConfigError(
                f"--set {path}: a command line can be read by every user of this machine; set the "
                "environment variable LPFLOOP_API_KEY instead"
            )


def _given(options: Mapping[str, object]) -> list[str]:
    return [f"--{name}={value}" for name, value in options.items() if value is not None]


def _job(config: "RunConfig", lake: Path, name: str, fork: str | None = None) -> "Job":
    from ..job import Job

    return Job(config=config, lake=lake, name=name, fork=fork)


def stop_signal(config: "RunConfig", *, lift_pause: bool = False) -> "StopSignal":
    """Return what asks the loop to stop, on a signal or by a command."""
    from ..stop import StopSignal

    return StopSignal(drain_s=config.drain_s, lift_pause=lift_pause)


def _detached(arguments: "Sequence[str]", name: str, lake: Path) -> None:
    """Start a daemon; return when it holds the run, or exit as it did."""
    from ..detach import start
    from ..talk import say

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


def work_on(job: "Job", stop: "StopSignal", announce: int | None) -> None:
    """Run the loop under a display and its log, then print the table and where to look."""
    from ..daemon import run_loop
    from ..detach import settle
    from ..logs import LogReporter, Tee, bound_logs, logging_to
    from ..printing import print_results
    from ..reading import evaluations, open_run
    from ..secrecy import hide_environment, hide_secrets_of
    from ..talk import say

    hide_environment()
    hide_secrets_of(job.config)
    where = in_lake(job.lake)
    with ExitStack() as ending:
        ending.enter_context(_private_files())
        reporter = Tee([ending.enter_context(reporting()), LogReporter()])

        def on_open(folder: Path) -> None:
            bound_logs(folder)
            ending.enter_context(logging_to(folder))
            if announce is not None:
                settle(folder, announce)
            if stop.paused:
                reporter.note(
                    f"run {job.name} is paused; `lpfloop resume {job.name}{where}` lets it go on"
                )

        ending.enter_context(stop.on_signals())
        run_loop(job, reporter, stop, on_open=on_open)
    reader = open_run(job.lake, job.name)
    print_results(evaluations(reader))
    reader.close()
    say(
        f"look at it: `lpfloop status {job.name}{where}`, `lpfloop critiques {job.name}{where} "
        f"--rating -1`, `lpfloop pairs {job.name}{where}`, `lpfloop show PROMPT_ID{where}`"
    )


@contextmanager
def reporting() -> "Generator[Reporter]":
    """Show progress on stderr: live on a terminal, in plain lines elsewhere."""
    from rich.console import Console

    from ..display import LiveReporter, PlainReporter

    console = Console(stderr=True)
    reporter = LiveReporter(console) if console.is_terminal else PlainReporter(console)
    try:
        yield reporter
    finally:
        reporter.close()


@contextmanager
def _private_files() -> Generator[None]:
    """Let nobody but the user read what the loop and its children make."""
    before = os.umask(PRIVATE)
    try:
        yield
    finally:
        os.umask(before)
