"""The command line: all commands, in the panels in which `lpfloop --help` shows them.

Data is printed to stdout, messages to stderr. Heavy modules are imported inside the commands, so
that `--help` answers at once. Exit codes: 0 done; 1 a fault; 2 bad input; 3 stopped cleanly,
resumable; 4 nothing to train on.
"""

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ... import __version__
from ...configs.secrecy import hide_own_key
from ..run.terminal import guard_streams
from .common import Exit, exit_codes
from .compare_commands import compare
from .config_commands import diff_configs, recipes, show_config
from .critique_commands import critique
from .derive_commands import rebuild_pairs, train
from .exchange_commands import annotations, export, import_
from .launch_commands import launch
from .list_commands import alarms, candidates, critiques, pairs, search, sql
from .measure_commands import critic_check, evaluate, judge_check
from .model_commands import model
from .operate_commands import ctl, pause, status, stop, take_over, watch
from .options import with_options
from .plan_commands import doctor, prepare, preview
from .run_commands import demo, resume, run
from .store_commands import digest, gc, repair, verify
from .study_commands import study
from .trace_commands import diff, report, show, view
from .verdict_commands import verdict

__all__ = ["Exit", "app", "main"]

Command = Callable[..., None]


@dataclass(frozen=True, slots=True)
class CommandGroup:
    """Commands under a common first word."""

    about: str
    commands: Mapping[str, Command]


class CommandTree(TyperGroup):
    """The commands; for a command of a group it suggests the full name."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an expected error is one sentence and an exit code."""
        with exit_codes():
            return super().invoke(ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command of the first word, as Typer does."""
        word = args[0]
        places = [
            f"lpfloop {panel_name} {word}"
            for commands in PANELS.values()
            for panel_name, command in commands.items()
            if isinstance(command, CommandGroup) and word in command.commands
        ]
        if word not in self.commands and places:
            ctx.fail(f"No such command {word!r}. Did you mean `{'` or `'.join(places)}`?")
        return super().resolve_command(ctx, args)


PANELS: Mapping[str, Mapping[str, Command | CommandGroup]] = {
    "Start here": {
        "demo": demo,
        "run": run,
        "status": status,
        "report": report,
        "resume": resume,
        "doctor": doctor,
    },
    "Run": {
        "prepare": prepare,
        "preview": preview,
        "takeover": take_over,
        "watch": watch,
        "pause": pause,
        "stop": stop,
        "ctl": ctl,
        "launch": launch,
    },
    "Look": {
        "view": view,
        "model": model,
        "show": show,
        "diff": diff,
        "candidates": candidates,
        "critiques": critiques,
        "pairs": pairs,
        "alarms": alarms,
        "search": search,
        "sql": sql,
    },
    "Data": {
        "import": import_,
        "export": export,
        "critique": critique,
        "annotations": annotations,
        "rebuild-pairs": rebuild_pairs,
        "train": train,
    },
    "Measure": {
        "compare": compare,
        "verdict": verdict,
        "study": study,
        "critic-check": critic_check,
        "judge-check": judge_check,
        "eval": CommandGroup("Measure models.", {"run": evaluate}),
    },
    "Maintain": {
        "config": CommandGroup(
            "Show, compare and explain settings.",
            {
                "show": show_config,
                "diff": diff_configs,
                "recipes": recipes,
            },
        ),
        "lake": CommandGroup(
            "Check, repair and tidy stored runs.",
            {
                "verify": verify,
                "repair": repair,
                "digest": digest,
                "gc": gc,
            },
        ),
    },
}


def _add(app: typer.Typer, name: str, group: CommandGroup, *, panel: str) -> None:
    added = typer.Typer(cls=CommandTree, help=group.about, no_args_is_help=True)
    for word, command in group.commands.items():
        added.command(word)(with_options(command))
    app.add_typer(added, name=name, rich_help_panel=panel)


def _tree() -> typer.Typer:
    app = typer.Typer(
        name="lpfloop",
        cls=CommandTree,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    for panel, commands in PANELS.items():
        for name, command in commands.items():
            if isinstance(command, CommandGroup):
                _add(app, name, command, panel=panel)
            else:
                app.command(name, rich_help_panel=panel)(with_options(command))
    return app


app = _tree()


def _print_version(requested: bool) -> None:  # noqa: FBT001 -- as Typer calls it
    if requested:
        typer.echo(f"lpfloop {__version__} (Python {platform.python_version()})")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version, and end."
        ),
    ] = False,
) -> None:
    """Improve a language model by its own feedback, and keep all the evidence."""
    del version


def main() -> None:
    """Run the command line."""
    hide_own_key()
    guard_streams()
    app()
