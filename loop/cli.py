"""The command line: which commands there are.

Data goes to stdout, talk to stderr. Heavy modules are imported inside the commands, so that
`--help` answers at once. Exit codes: 0 done; 1 a fault; 2 bad input; 3 stopped cleanly, resumable;
4 nothing to train on.
"""

from collections.abc import Callable, Mapping

import typer

from .commands import (
    comparing,
    completing,
    deriving,
    exchange,
    judging,
    keeping,
    listing,
    machine,
    operating,
    reading,
    running,
    searching,
    tracing,
)
from .commands.common import Exit

__all__ = ["Exit", "app", "main"]

COMMANDS: Mapping[str, Callable[..., None]] = {
    "run": running.run,
    "resume": running.resume,
    "status": operating.status,
    "watch": operating.watch,
    "pause": operating.pause,
    "stop": operating.stop,
    "ctl": operating.ctl,
    "launch": running.launch,
    "show": tracing.show,
    "lineage": tracing.lineage,
    "diff": tracing.diff,
    "sql": reading.sql,
    "critiques": listing.critiques,
    "candidates": listing.candidates,
    "grades": listing.grades,
    "pairs": listing.pairs,
    "failures": listing.failures,
    "search": searching.search,
    "reindex": searching.reindex,
    "duplicates": searching.duplicates,
    "rederive": deriving.rederive,
    "reparse": deriving.reparse,
    "derived": deriving.derived,
    "train": deriving.train,
    "eval": reading.evaluate,
    "judge-check": judging.judge_check,
    "compare": comparing.compare,
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
    help="Improve a language model by its own feedback, and keep every sentence of evidence.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for name, command in COMMANDS.items():
    app.command(name)(command)

tiny = typer.Typer(help="The embedded tiny world.", no_args_is_help=True)
tiny.command("build")(machine.build)
app.add_typer(tiny, name="tiny")


def main() -> None:
    """Run the command line."""
    from .talk import guard_streams

    guard_streams()
    app()
