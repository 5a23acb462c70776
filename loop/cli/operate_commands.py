"""Commands that operate a run: `status`, `watch`, `pause`, `stop`, `ctl`."""

import json
from contextlib import closing
from enum import StrEnum
from typing import Annotated

import typer

from ..lake.query.forms import Form, Grouping, MeasuredSplit
from .common import (
    DEFAULT_LAKE,
    AnyRun,
    AsForm,
    AsJson,
    Lake,
    OneIteration,
    RunArgument,
    exit_codes,
    folder_of,
    in_lake,
)
from .session import reporting


class Action(StrEnum):
    """The actions of `ctl`."""

    SET = "set"
    GET = "get"


def status(
    name: AnyRun = None,
    *,
    lake: Lake = DEFAULT_LAKE,
    iteration: OneIteration = None,
    split: Annotated[
        MeasuredSplit | None,
        typer.Option(help="Results on these prompts; default: held-out, once it is measured."),
    ] = None,
    by: Annotated[
        Grouping, typer.Option(help="Results for each task, or for each family of prompts.")
    ] = Grouping.TASK,
    wide: Annotated[
        bool, typer.Option("--wide", help="Results of every model with all its changes.")
    ] = False,
    form: AsForm = Form.AUTO,
    as_json: AsJson = False,
) -> None:
    """Show a run's stages, its models' results, what it has spent, and which process works."""
    from ...stores.schemas import plain
    from ..daemon.status import overview, stage_rows
    from ..lake.query.flips import lost_since
    from ..lake.query.model_figures import results_by
    from ..lake.query.row_output import is_table, write_frame
    from ..lake.query.runs import evaluations, open_run
    from .tables import print_json, print_status, published_line

    with exit_codes():
        table = is_table(form, as_json=as_json) or form is Form.AUTO
        with closing(open_run(lake, name)) as reader:
            found = overview(reader, iteration, in_lake(lake))
            if not (table or as_json):
                write_frame(stage_rows(found), form)
                return
            results = results_by(reader, by.value, split and split.value)
            lost = lost_since(reader, results)
            if as_json:
                print_json({**found, "results": results.document, "lost": plain(lost)})
                return
            published = published_line(reader, in_lake(lake))
            print_status(found, results, lost, evaluations(reader), published, wide=wide)


def watch(name: AnyRun = None, *, lake: Lake = DEFAULT_LAKE) -> None:
    """Show the display of a run in another process, until it ends or Ctrl-C."""
    from ..data.sanitize import visible
    from ..lake.query.runs import open_run
    from ..run.terminal import say
    from .watch import Watcher

    with exit_codes(), reporting() as reporter:
        reader = open_run(lake, name)
        try:
            typer.echo(visible(Watcher(reader=reader.journal, reporter=reporter).watch()))
        except KeyboardInterrupt:
            say(f"run {reader.folder.name} goes on")
        finally:
            reader.close()


def pause(name: RunArgument, *, lake: Lake = DEFAULT_LAKE) -> None:
    """Pause a run until `resume`; units in flight are finished and kept."""
    from ..daemon.control import Pause
    from ..daemon.status import unless_finished
    from ..run.terminal import say

    with exit_codes():
        state = unless_finished(folder_of(lake, name), Pause())
    typer.echo(f"{state.pid} paused")
    say(f"`lpfloop resume {name}{in_lake(lake)}` continues it")


def stop(
    name: RunArgument,
    *,
    now: Annotated[bool, typer.Option("--now", help="Do not wait for work in flight.")] = False,
    lake: Lake = DEFAULT_LAKE,
) -> None:
    """Stop a run cleanly, and wait for its process to end."""
    from ..daemon.status import stop_run
    from ..run.terminal import say

    with exit_codes():
        pid = stop_run(folder_of(lake, name), now=now, say=say)
    typer.echo(f"{pid} stopped")
    say(f"`lpfloop resume {name}{in_lake(lake)}` continues where it stopped")


def ctl(
    name: RunArgument,
    action: Annotated[Action, typer.Argument(help="set PATH=VALUE, or get [PATH].")],
    words: Annotated[list[str] | None, typer.Argument(metavar="[PATH=VALUE]...")] = None,
    *,
    lake: Lake = DEFAULT_LAKE,
) -> None:
    """Read live settings of a running loop, or change them from the next unit on."""
    from ...configs.load import parse_set
    from ...configs.schema import ConfigError
    from ..daemon.control import Look, Set, ask

    with exit_codes():
        folder = folder_of(lake, name)
        if action is Action.SET:
            changes = [parse_set(word) for word in words or ()]
            if not changes:
                raise ConfigError(f"ctl {name} set: say what, as PATH=VALUE")
            for change in changes:
                state = ask(folder, Set(path=change.path, value=change.value))
                typer.echo(f"{change.path}={json.dumps(state.live[change.path])}")
            return
        live = ask(folder, Look()).live
        unknown = [path for path in words or () if path not in live]
        if unknown:
            raise ConfigError(
                f"{unknown[0]} is not a live field; the live fields are {', '.join(live)}"
            )
        for path in words or live:
            typer.echo(f"{path}={json.dumps(live[path])}")
