"""Commands that operate a run: `status`, `watch`, `pause`, `stop`, `ctl`, `takeover`."""

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ...stores.address import DEFAULT_LAKE, in_lake
from .common import chosen_run, folder_of
from .options import AnyRun, DocumentOutput, Lake, OneIteration, lake_of, live_names
from .session import reporting

if TYPE_CHECKING:
    from rich.console import Console


def status(
    name: AnyRun = None,
    *,
    lake: Lake = DEFAULT_LAKE,
    iteration: OneIteration = None,
    split: Annotated[
        str | None,
        typer.Option(
            metavar="dev|held-out|SET",
            help="Only these prompts; default: the held-out ones, once measured.",
        ),
    ] = None,
    by: Annotated[
        Literal["task", "family", "source"],
        typer.Option(help="Group by this: the task, the family or the source of prompts."),
    ] = "task",
    wide: Annotated[
        bool, typer.Option("--wide", help="Show every model with all its changes.")
    ] = False,
    stages: Annotated[
        bool, typer.Option("--stages", help="Show the plan and each stage, too.")
    ] = False,
    out: DocumentOutput,
) -> None:
    """Show what a run needs, how far it is, its result, and its warnings."""
    from ..daemon.status import overview
    from ..lake.query.model_figures import results_by
    from ..lake.query.run_status import evaluations
    from ..lake.query.runs import open_run, require_iteration
    from ..report.result_table import print_results
    from .measure_tables import print_critic, print_probes
    from .result_block import result_lines
    from .status_text import print_status, published_line

    with closing(open_run(lake, name)) as reader:
        require_iteration(reader, iteration)
        found = overview(reader, iteration, in_lake(lake))
        results = results_by(reader, by, split)

        def tables(console: "Console") -> None:
            print_results(console, results, wide=wide)
            print_probes(console, evaluations(reader))
            print_critic(console, found["iterations"], wide=wide)

        def draw() -> None:
            published = published_line(reader, in_lake(lake))
            print_status(found, result_lines(reader), tables, published, stages=stages)

        out.document({**found, "results": results.document}, draw)


def watch(name: AnyRun = None, *, lake: Lake = DEFAULT_LAKE) -> None:
    """Watch a run that another process works on."""
    from ..data.text import visible
    from ..lake.query.runs import open_run
    from ..run.terminal import say
    from .watch import watch_run

    with reporting() as reporter:
        reader = open_run(lake, name)
        try:
            typer.echo(visible(watch_run(reader.journal, reporter)))
        except KeyboardInterrupt:
            say(f"run {reader.folder.name} continues")
        finally:
            reader.close()


def pause(name: AnyRun = None, *, lake: Lake = DEFAULT_LAKE) -> None:
    """Pause a run until `lpfloop resume`.

    Work in flight is finished and committed.
    """
    from ..daemon.control import Command
    from ..daemon.status import unless_finished
    from ..run.terminal import say

    name = chosen_run(lake, name, tell=True)
    state = unless_finished(folder_of(lake, name), Command(op="pause"))
    typer.echo(f"{state.pid} paused")
    say(f"`lpfloop resume {name}{in_lake(lake)}` continues it")


def stop(
    name: AnyRun = None,
    *,
    now: Annotated[
        bool, typer.Option("--now", help="Do not wait for work that is under way.")
    ] = False,
    lake: Lake = DEFAULT_LAKE,
) -> None:
    """Stop a run cleanly; nothing that was made is lost."""
    from ..daemon.status import stop_run
    from ..run.terminal import say

    name = chosen_run(lake, name, tell=True)
    pid = stop_run(folder_of(lake, name), now=now, say=say)
    typer.echo(f"{pid} stopped")
    say(f"`lpfloop resume {name}{in_lake(lake)}` continues where it stopped")


def ctl(
    words: Annotated[
        list[str],
        typer.Argument(
            help="Run (default: the latest), then get [PATH]... or set PATH=VALUE...",
            metavar="[RUN] get|set [PATH[=VALUE]]...",
            autocompletion=live_names,
        ),
    ],
    *,
    lake: Lake = DEFAULT_LAKE,
) -> None:
    """Read or change live settings of a run at work.

    A change takes effect with the next unit of work.
    """
    from ...configs.load import parse_set
    from ...configs.mistakes import alike, did_you_mean, list_names
    from ...configs.schema import ConfigError
    from ..daemon.control import Command, ask

    called, action, rest = _parse_words(words)
    name = chosen_run(lake, called, tell=True)
    folder = folder_of(lake, name)
    if action == "set":
        changes = [parse_set(word) for word in rest]
        if not changes:
            raise ConfigError(f"ctl {name} set: give settings as PATH=VALUE")
        for change in changes:
            state = ask(folder, Command(op="set", path=change.path, value=change.value))
            typer.echo(f"{change.path}={json.dumps(state.live[change.path])}")
        return
    live = ask(folder, Command(op="look")).live
    unknown = [path for path in rest if path not in live]
    if unknown:
        raise ConfigError(
            f"{unknown[0]} is not a live field; {did_you_mean(unknown[0], live)}the "
            f"live fields are "
            f"{list_names(alike(unknown[0], live), '`lpfloop ctl get` lists them')}"
        )
    for path in rest or live:
        typer.echo(f"{path}={json.dumps(live[path])}")


def _parse_words(words: Sequence[str]) -> tuple[str | None, str, Sequence[str]]:
    """Return the run, if the words contain one, `get` or `set`, and the rest of the words."""
    from ...configs.schema import ConfigError

    for name, (action, *rest) in ((None, words), (words[0], words[1:] or [""])):
        if action in ("get", "set"):
            return name, action, rest
    raise ConfigError(f"ctl {words[0]}: give a subcommand: `ctl [RUN] get`, `ctl [RUN] set`")


def take_over(
    lake: Annotated[
        Path,
        typer.Argument(parser=lake_of, metavar="PLACE", help="The lake: s3://BUCKET/PREFIX."),
    ],
    name: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="Name of the run; default: the only one not here."),
    ] = None,
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a machine that may still work on it.")
    ] = False,
) -> None:
    """Take over a run in a bucket whose machine is lost.

    From the last journal in the bucket. The previous machine stops writing to it.
    """
    from ..daemon.resuming import takeover
    from ..run.terminal import say

    run, lines = takeover(lake, name, force=force)
    for line in lines:
        say(line)
    say(f"`lpfloop resume {run}{in_lake(lake)}` continues it")
    typer.echo(run)
