"""`lpfloop eval run`: measure a run's models."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...stores.address import DEFAULT_LAKE
from .common import AnIteration, AnyRun, Lake, chosen_run
from .output import DocumentOutput
from .session import reporting

if TYPE_CHECKING:
    from ...stores.records import Evaluation


def evaluate(
    name: AnyRun = None,
    *,
    lake: Lake = DEFAULT_LAKE,
    iteration: AnIteration = None,
    prompts: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE|NAME=FILE",
            help="Prompts: a file to measure on, instead of the held-out ones.",
        ),
    ] = None,
    out: DocumentOutput,
) -> None:
    """Measure a run's models on held-out or other prompts."""
    from ...stores.frames import rows_frame
    from ...stores.records import Evaluation
    from ..daemon.evaluate_run import evaluate_run, files_of

    name = chosen_run(lake, name, tell=True)
    with reporting() as reporter:
        found = evaluate_run(lake, name, iteration, files_of(prompts or ()), reporter)
    if out.is_table:
        _print_measured(lake, name, found)
    else:
        out.rows(rows_frame(Evaluation, found))


def _print_measured(lake: Path, name: str, found: "Sequence[Evaluation]") -> None:
    """Print the results on the benchmarks of these numbers, of the models that they are about."""
    from rich.console import Console

    from ..lake.query.model_figures import run_results
    from ..lake.query.runs import open_run
    from ..report.result_table import print_results

    splits = dict.fromkeys(_split(number.benchmark) for number in found)
    with closing(open_run(lake, name)) as run:
        results = [run_results(run, split=split) for split in splits]
    for of in results:
        print_results(Console(), of.only({number.iteration for number in found}))


def _split(benchmark: str) -> str:
    """Return the split under which results on a benchmark are shown, held-out for all its sets."""
    from ..data.splits import HELD_OUT, is_measured_on

    return HELD_OUT if is_measured_on(benchmark, HELD_OUT) else benchmark
