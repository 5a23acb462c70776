"""The command line: `lpfloop run`, and the commands that resume, show, evaluate and check.

Data goes to stdout, talk to stderr. Heavy modules are imported inside the commands, so that
`--help` answers at once. Exit codes: 0 done; 1 a fault; 2 bad input; 3 stopped cleanly, resumable;
4 nothing to train on.
"""

import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..configs.schema import RunConfig
    from .daemon import Job
    from .reading import Filter
    from .reporter import Reporter

app = typer.Typer(
    name="lpfloop",
    help="Improve a language model by its own feedback, and keep every sentence of evidence.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
tiny = typer.Typer(help="The embedded tiny world.", no_args_is_help=True)
app.add_typer(tiny, name="tiny")


class Exit(IntEnum):
    """What the exit code of a command means."""

    DONE = 0
    FAULT = 1
    BAD_INPUT = 2
    STOPPED = 3
    NOTHING_TO_TRAIN_ON = 4


Lake = Annotated[
    Path, typer.Option("--lake", envvar="LPFLOOP_LAKE", help="Folder that holds the runs.")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
OneIteration = Annotated[int | None, typer.Option("--iteration", min=0, help="Only iteration T.")]
OneTask = Annotated[str | None, typer.Option("--task", help="Only prompts of this task.")]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="At most so many rows.")]
RunArgument = Annotated[str, typer.Argument(help="Name of the run.", metavar="RUN")]
DEFAULT_LAKE = Path("lake")


def say(text: str) -> None:
    """Say one sentence to the person at the terminal."""
    typer.echo(text, err=True)


@contextmanager
def exit_codes() -> Generator[None]:
    """Turn what can go wrong into one sentence and its exit code; anything else is a fault."""
    from ..configs.schema import ConfigError
    from ..policies.engine import EngineError
    from ..policies.training import TrainingError
    from ..stores.durable import DamagedError
    from ..stores.journal import JournalError, LockedError
    from ..stores.lake import RunNameError
    from .prompts import InputError
    from .reading import NoSuchPromptError, NoSuchRunError
    from .shown import visible
    from .stop import Stopped
    from .training import NothingToTrainOn

    try:
        yield
    except (
        ConfigError,
        InputError,
        RunNameError,
        NoSuchRunError,
        NoSuchPromptError,
        JournalError,
        LockedError,
    ) as error:
        say(f"error: {visible(str(error))}")
        raise typer.Exit(Exit.BAD_INPUT) from error
    except (EngineError, TrainingError, DamagedError) as error:
        say(f"error: {visible(str(error))}")
        raise typer.Exit(Exit.FAULT) from error
    except Stopped as error:
        say("stopped cleanly; `lpfloop resume` continues where it stopped")
        raise typer.Exit(Exit.STOPPED) from error
    except NothingToTrainOn as error:
        say(f"nothing to train on: {error}")
        raise typer.Exit(Exit.NOTHING_TO_TRAIN_ON) from error


@app.command()
def run(
    *,
    config: Annotated[str | None, typer.Option(help="Preset or YAML file.")] = None,
    variant: Annotated[str | None, typer.Option(help="Recipe; see `lpfloop variants`.")] = None,
    iterations: Annotated[int | None, typer.Option(min=0, help="Iterations to reach.")] = None,
    name: Annotated[str | None, typer.Option("--run", help="Name of the run.")] = None,
    lake: Lake = DEFAULT_LAKE,
    prompts: Annotated[str | None, typer.Option(help="Prompts, as JSONL.")] = None,
    policy: Annotated[str | None, typer.Option(help="Model to improve: folder or URL.")] = None,
    critic: Annotated[str | None, typer.Option(help="Feedback model: folder or URL.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Root of all random numbers.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Override: section.key=value.")
    ] = None,
) -> None:
    """Run the loop; the same run name again continues where it stopped."""
    from ..configs.load import Override, load_config

    given = (
        Override(source="--iterations", path="iterations", value=iterations),
        Override(source="--prompts", path="prompts.source", value=prompts),
        Override(source="--policy", path="policy.model", value=policy),
        Override(source="--critic", path="critic.model", value=critic),
        Override(source="--seed", path="seed", value=seed),
    )
    with exit_codes():
        own = config is None and any(v is not None for v in (prompts, policy, critic))
        chosen = "own" if own else config
        overrides = [override for override in given if override.value is not None]
        loaded = load_config(chosen, variant, [*overrides, *(settings or ())], os.environ)
        default = f"{Path(chosen or 'tiny').stem}-{loaded.recipe.name}"
        _loop(_job(loaded, lake, name or default))


@app.command()
def resume(
    name: RunArgument,
    lake: Lake = DEFAULT_LAKE,
    iterations: Annotated[int | None, typer.Option(min=0, help="Iterations to reach.")] = None,
) -> None:
    """Continue an interrupted run from its stored configuration."""
    from ..configs.load import Override, stored_config
    from .reading import open_run

    with exit_codes():
        reader = open_run(lake, name)
        stored = json.loads(reader.journal.meta("config") or "{}")
        reader.close()
        raised = [Override(source="--iterations", path="iterations", value=iterations)]
        config = stored_config(stored, raised if iterations is not None else (), os.environ)
        _loop(_job(config, lake, name))


def _job(config: "RunConfig", lake: Path, name: str) -> "Job":
    from .daemon import Job

    return Job(config=config, lake=lake, name=name)


def _loop(job: "Job") -> None:
    """Run the loop under a display, then print the table and where to look."""
    from .daemon import run_loop
    from .printing import print_results
    from .reading import evaluations, open_run
    from .stop import StopSignal

    stop = StopSignal()
    with _reporting() as reporter, stop.on_signals():
        run_loop(job, reporter, stop)
    reader = open_run(job.lake, job.name)
    print_results(evaluations(reader))
    reader.close()
    where = "" if job.lake == DEFAULT_LAKE else f" --lake {job.lake}"
    say(
        f"look at it: `lpfloop status {job.name}{where}`, `lpfloop critiques {job.name}{where} "
        f"--rating -1`, `lpfloop pairs {job.name}{where}`, `lpfloop show PROMPT_ID{where}`"
    )


@contextmanager
def _reporting() -> "Generator[Reporter]":
    """Show progress on stderr: live on a terminal, in plain lines elsewhere."""
    from rich.console import Console

    from .display import LiveReporter, PlainReporter

    console = Console(stderr=True)
    reporter = LiveReporter(console) if console.is_terminal else PlainReporter(console)
    try:
        yield reporter
    finally:
        reporter.close()


@app.command()
def status(
    name: Annotated[str | None, typer.Argument(help="Name of the run.", metavar="RUN")] = None,
    *,
    lake: Lake = DEFAULT_LAKE,
    iteration: OneIteration = None,
    as_json: AsJson = False,
) -> None:
    """Show what a run has done, iteration by iteration."""
    from .printing import print_json, print_status
    from .reading import evaluations, open_run
    from .reading import status as read_status

    with exit_codes():
        reader = open_run(lake, name)
        found = read_status(reader, iteration)
        if as_json:
            print_json(found)
        else:
            print_status(found, evaluations(reader))
        reader.close()


@app.command()
def variants(*, as_json: AsJson = False) -> None:
    """List the recipes."""
    from .printing import print_json, print_rows
    from .recipes import RECIPES

    rows = [{"name": n, "paper": v.paper, "summary": v.summary} for n, v in RECIPES.items()]
    if as_json:
        print_json(rows)
    else:
        print_rows(rows, ("name", "paper", "summary"))


@app.command()
def show(
    prompt_id: Annotated[str, typer.Argument(help="Id of a prompt.", metavar="PROMPT_ID")],
    *,
    name: Annotated[str | None, typer.Option("--run", help="Name of the run.")] = None,
    lake: Lake = DEFAULT_LAKE,
    iteration: OneIteration = None,
    as_json: AsJson = False,
) -> None:
    """Show a prompt with its candidates, critiques, rewards and the pairs made of them."""
    from .printing import print_json, print_story
    from .reading import prompt_story, run_with_prompt

    with exit_codes():
        reader, whole_id = run_with_prompt(lake, prompt_id, name)
        story = prompt_story(reader, whole_id, iteration)
        reader.close()
        if as_json:
            print_json(story)
        else:
            print_story(story)


@app.command()
def critiques(
    name: RunArgument,
    *,
    lake: Lake = DEFAULT_LAKE,
    iteration: OneIteration = None,
    task: OneTask = None,
    aspect: Annotated[str | None, typer.Option(help="Only critiques that rate it.")] = None,
    rating: Annotated[
        int | None, typer.Option(min=-1, max=1, help="Only with this rating.")
    ] = None,
    unscored: Annotated[bool, typer.Option("--unscored", help="Only unread replies.")] = False,
    limit: Limit = None,
    as_json: AsJson = False,
) -> None:
    """List the critiques of a run."""
    from .reading import Filter

    wanted = Filter(
        iteration=iteration,
        task=task,
        aspect=aspect,
        rating=rating,
        unscored=unscored,
        limit=limit,
    )
    columns = ("iteration", "prompt_id", "status", "aspects", "text")
    _list(lake, name, "critiques", wanted, columns, as_json=as_json)


@app.command()
def pairs(
    name: RunArgument,
    *,
    lake: Lake = DEFAULT_LAKE,
    iteration: OneIteration = None,
    task: OneTask = None,
    limit: Limit = None,
    as_json: AsJson = False,
) -> None:
    """List the pairs of a run: chosen beside rejected."""
    from .reading import Filter

    wanted = Filter(iteration=iteration, task=task, limit=limit)
    columns = ("iteration", "prompt_id", "rank", "prompt", "chosen", "rejected")
    _list(lake, name, "pairs", wanted, columns, as_json=as_json)


def _list(
    lake: Path, name: str, table: str, wanted: "Filter", columns: tuple[str, ...], *, as_json: bool
) -> None:
    from .printing import print_json, print_rows
    from .reading import open_run, rows

    with exit_codes():
        reader = open_run(lake, name)
        found = rows(reader, table, wanted)
        reader.close()
        if as_json:
            print_json(found)
        else:
            print_rows(found, columns)


@app.command(name="eval")
def evaluate(
    name: RunArgument,
    *,
    lake: Lake = DEFAULT_LAKE,
    iteration: OneIteration = None,
    prompts: Annotated[
        Path | None, typer.Option(help="Evaluate on these prompts instead (JSONL).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate a run's checkpoints: held-out prompts, or a file of your own."""
    from ..stores.schemas import plain
    from .benchmarking import evaluate_run
    from .printing import print_json, print_results

    with exit_codes(), _reporting() as reporter:
        found = evaluate_run(lake, name, iteration, prompts, reporter)
    if as_json:
        print_json(plain(found))
    else:
        print_results(found)


@app.command()
def doctor(
    *,
    config: Annotated[str | None, typer.Option(help="Preset or YAML file.")] = None,
    variant: Annotated[str | None, typer.Option(help="Recipe.")] = None,
    lake: Lake = DEFAULT_LAKE,
    as_json: AsJson = False,
) -> None:
    """Say whether `lpfloop run` would start here, and what is missing."""
    from ..configs.load import load_config
    from .doctor import diagnose

    with exit_codes():
        diagnosis = diagnose(load_config(config, variant, (), os.environ), lake)
    typer.echo(diagnosis.as_json() if as_json else diagnosis.as_text())
    raise typer.Exit(Exit.DONE if diagnosis.ok else Exit.FAULT)


@tiny.command()
def build(
    output: Annotated[Path, typer.Argument(help="Folder to make.", metavar="OUT")],
    seed: Annotated[int | None, typer.Option(min=0, help="Default: that of the shipped.")] = None,
    scale: Annotated[float, typer.Option(min=0.001, max=1, help="Share of the steps.")] = 1.0,
) -> None:
    """Train the tiny world's seed model M_0 and its reward model from scratch."""
    from .tiny.build import CARD
    from .tiny.build import build as build_models
    from .tiny.training import Progress
    from .tiny.world import SEED

    def watch(progress: Progress) -> None:
        if progress.step % 50 == 0 or progress.step == progress.steps:
            say(f"{progress.stage} {progress.step}/{progress.steps}  loss {progress.loss:.3f}")

    if output.exists():
        say(f"error: {output} exists already; name a folder that does not")
        raise typer.Exit(Exit.BAD_INPUT)
    report = build_models(output, seed=SEED if seed is None else seed, scale=scale, watch=watch)
    typer.echo((output / CARD).read_text())
    say(f"built in {report.seconds / 60:.1f} minutes, {report.bytes:,} bytes")


def main() -> None:
    """Run the command line."""
    app()
