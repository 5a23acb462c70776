"""The command line: the list of commands.

Data goes to stdout, messages to stderr. Heavy modules are imported inside the commands, so that
`--help` answers at once. Exit codes: 0 done; 1 a fault; 2 bad input; 3 stopped cleanly, resumable;
4 nothing to train on.
"""

import platform
from collections.abc import Callable, Mapping
from typing import Annotated

import typer

from ... import __version__
from . import (
    alarm_commands as alarming,
)
from . import (
    annotate_commands as annotating,
)
from . import (
    compare_commands as comparing,
)
from . import (
    config_commands as configuring,
)
from . import (
    critic_commands as watching,
)
from . import (
    critique_commands as critiquing,
)
from . import (
    derive_commands as deriving,
)
from . import (
    exchange_commands as exchange,
)
from . import (
    fact_commands as factual,
)
from . import (
    judge_commands as judging,
)
from . import (
    list_commands as listing,
)
from . import (
    machine_commands as machine,
)
from . import (
    model_commands as modelling,
)
from . import (
    operate_commands as operating,
)
from . import (
    plan_commands as planning,
)
from . import (
    principle_commands as completing,
)
from . import (
    query_commands as reading,
)
from . import (
    run_commands as running,
)
from . import (
    search_commands as searching,
)
from . import (
    step_commands as stepping,
)
from . import (
    store_commands as keeping,
)
from . import (
    trace_commands as tracing,
)
from . import (
    verdict_commands as deciding,
)
from .common import Exit

__all__ = ["Exit", "app", "main"]

COMMANDS: Mapping[str, Callable[..., None]] = {
    "run": running.run,
    "preview": planning.preview,
    "resume": running.resume,
    "status": operating.status,
    "watch": operating.watch,
    "pause": operating.pause,
    "stop": operating.stop,
    "ctl": operating.ctl,
    "launch": running.launch,
    "model": modelling.model,
    "show": tracing.show,
    "lineage": tracing.lineage,
    "diff": tracing.diff,
    "sql": reading.sql,
    "critiques": listing.critiques,
    "candidates": listing.candidates,
    "grades": listing.grades,
    "pairs": listing.pairs,
    "failures": listing.failures,
    "alarms": alarming.alarms,
    "facts": factual.facts,
    "steps": stepping.steps,
    "search": searching.search,
    "reindex": searching.reindex,
    "duplicates": searching.duplicates,
    "rederive": deriving.rederive,
    "reparse": deriving.reparse,
    "derived": deriving.derived,
    "train": deriving.train,
    "eval": reading.evaluate,
    "critique": critiquing.critique,
    "annotate": annotating.annotate,
    "annotations": annotating.annotations,
    "critic-check": watching.critic_check,
    "judge-check": judging.judge_check,
    "compare": comparing.compare,
    "verdict": deciding.verdict,
    "variants": reading.variants,
    "principles": completing.principles,
    "import": exchange.import_,
    "export": exchange.export,
    "digest": keeping.digest,
    "verify": keeping.verify,
    "repair": keeping.repair,
    "gc": keeping.gc,
    "compact": keeping.compact,
    "migrate": keeping.migrate,
    "failpoints": keeping.failpoints,
    "doctor": machine.doctor,
}

app = typer.Typer(
    name="lpfloop",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for name, command in COMMANDS.items():
    app.command(name)(command)

tiny = typer.Typer(help="The shipped tiny world: small models and prompts.", no_args_is_help=True)
tiny.command("build")(machine.build)
app.add_typer(tiny, name="tiny")
app.add_typer(configuring.config, name="config")


def _print_version(wanted: bool) -> None:  # noqa: FBT001 -- as Typer calls it
    if wanted:
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
    from ...configs.secrecy import hide_own_key
    from ..run.terminal import guard_streams

    hide_own_key()
    guard_streams()
    app()
