"""The commands `sql`, `eval` and `variants`."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..lake.query.forms import Form, FormError
from .common import (
    DEFAULT_LAKE,
    AnIteration,
    AsForm,
    AsJson,
    Lake,
    Settings,
    exit_codes,
)
from .reward_commands import REWARD, RewardCheck, check_reward
from .session import reporting
from .win_rate_commands import WINRATE, winrate

if TYPE_CHECKING:
    from ...stores.records import Evaluation


def sql(
    query: Annotated[
        str | None, typer.Argument(help="One SELECT; without it: list the tables.")
    ] = None,
    *,
    run: Annotated[list[str] | None, typer.Option("--run", help="Only this run.")] = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds that the query may compute; 0: no limit.")
    ] = 60,
    lake: Lake = DEFAULT_LAKE,
    form: AsForm = Form.AUTO,
    as_json: AsJson = False,
) -> None:
    """Query all runs in SQL (DuckDB), read-only; each table has a column `run`."""
    from ..lake.query.row_output import write_frame
    from ..lake.query.sql import COLUMNS, answer

    with exit_codes(), answer(lake, query or COLUMNS, run or (), timeout=timeout) as found:
        write_frame(found, form, as_json=as_json)


def variants(*, form: AsForm = Form.AUTO, as_json: AsJson = False) -> None:
    """List the recipes."""
    import polars as pl

    from ..lake.query.row_output import write_frame
    from ..recipes import RECIPES

    rows = [{"name": n, "paper": v.paper, "summary": v.summary} for n, v in RECIPES.items()]
    with exit_codes():
        write_frame(pl.DataFrame(rows), form, as_json=as_json)


def evaluate(
    name: Annotated[
        str,
        typer.Argument(
            help="Name of the run; or winrate, for a file; or reward, for a reward model.",
            metavar="RUN|winrate|reward",
        ),
    ],
    *,
    lake: Lake = DEFAULT_LAKE,
    iteration: AnIteration = None,
    prompts: Annotated[Path | None, typer.Option(help="Evaluate on these prompts instead.")] = None,
    preferences: Annotated[
        list[Path] | None,
        typer.Option(
            help="winrate: annotations in AlpacaEval's format; reward: people's preferences."
        ),
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="winrate, reward: also by this field of the file.")
    ] = None,
    versus: Annotated[
        Path | None, typer.Option(help="winrate: also show the lead over this file's model.")
    ] = None,
    difficulty: Annotated[
        Path | None,
        typer.Option(help="winrate: a file of how hard each instruction is to win on."),
    ] = None,
    reward: Annotated[
        str | None, typer.Option(help="reward: the reward model's folder, or tiny.")
    ] = None,
    human: Annotated[
        list[str] | None,
        typer.Option("--human", help="reward: annotators whose names begin with this are people."),
    ] = None,
    settings: Settings = None,
    form: AsForm = Form.AUTO,
    as_json: AsJson = False,
) -> None:
    """Evaluate a run's checkpoints, recompute a win-rate, or check a reward model."""
    from ...stores.frames import rows_frame
    from ...stores.records import Evaluation
    from ..daemon.evaluate_run import evaluate_run
    from ..lake.query.row_output import is_table, write_frame

    with exit_codes():
        if name != REWARD:
            _refuse_elsewhere(REWARD, {"reward": reward, "human": human, "set": settings})
        if name == REWARD:
            _refuse_elsewhere(WINRATE, {"versus": versus, "difficulty": difficulty})
            check = RewardCheck(model=reward, files=preferences or (), by=by, human=human or ())
            check_reward(check, settings or (), form, as_json=as_json)
            return
        if name == WINRATE:
            file = _only(preferences)
            winrate(file, by, versus, form, difficulty=difficulty, as_json=as_json)
            return
        _refuse_elsewhere(
            WINRATE,
            {"preferences": preferences, "by": by, "versus": versus, "difficulty": difficulty},
        )
        table = is_table(form, as_json=as_json)
        with reporting() as reporter:
            found = evaluate_run(lake, name, iteration, prompts, reporter)
        if table:
            _print_measured(lake, name, found)
        else:
            write_frame(rows_frame(Evaluation, found), form, as_json=as_json)


def _print_measured(lake: Path, name: str, found: "Sequence[Evaluation]") -> None:
    """Print the results on the benchmark of these numbers, of the models that they are about."""
    from rich.console import Console

    from ..lake.query.model_figures import run_results
    from ..lake.query.runs import open_run
    from .result_tables import print_results

    if not found:
        return
    with closing(open_run(lake, name)) as run:
        results = run_results(run, split=found[0].benchmark)
    print_results(Console(), results.only({number.iteration for number in found}))


def _refuse_elsewhere(word: str, options: Mapping[str, object]) -> None:
    """Refuse options of another use of `eval`."""
    for option, given in options.items():
        if given is not None:
            raise FormError(f"--{option} belongs to `lpfloop eval {word} ...`")


def _only(files: Sequence[Path] | None) -> Path | None:
    """Return the one file for a win-rate."""
    if files is not None and len(files) > 1:
        raise FormError(f"eval {WINRATE}: takes one file, of one model; give --preferences once")
    return files[0] if files else None
