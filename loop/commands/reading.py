"""Commands that read what a run has made: `show`, `critiques`, `pairs`, `eval`, `variants`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .common import (
    DEFAULT_LAKE,
    AsJson,
    Lake,
    Limit,
    OneIteration,
    OneTask,
    RunArgument,
    exit_codes,
)
from .running import reporting

if TYPE_CHECKING:
    from ..reading import Filter


def variants(*, as_json: AsJson = False) -> None:
    """List the recipes."""
    from ..printing import print_json, print_rows
    from ..recipes import RECIPES

    rows = [{"name": n, "paper": v.paper, "summary": v.summary} for n, v in RECIPES.items()]
    if as_json:
        print_json(rows)
    else:
        print_rows(rows, ("name", "paper", "summary"))


def show(
    prompt_id: Annotated[str, typer.Argument(help="Id of a prompt.", metavar="PROMPT_ID")],
    *,
    name: Annotated[str | None, typer.Option("--run", help="Name of the run.")] = None,
    lake: Lake = DEFAULT_LAKE,
    iteration: OneIteration = None,
    as_json: AsJson = False,
) -> None:
    """Show a prompt with its candidates, critiques, rewards and the pairs made of them."""
    from ..printing import print_json, print_story
    from ..reading import prompt_story, run_with_prompt

    with exit_codes():
        reader, whole_id = run_with_prompt(lake, prompt_id, name)
        story = prompt_story(reader, whole_id, iteration)
        reader.close()
        if as_json:
            print_json(story)
        else:
            print_story(story)


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
    from ..reading import Filter

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
    from ..reading import Filter

    wanted = Filter(iteration=iteration, task=task, limit=limit)
    columns = ("iteration", "prompt_id", "rank", "prompt", "chosen", "rejected")
    _list(lake, name, "pairs", wanted, columns, as_json=as_json)


def _list(
    lake: Path, name: str, table: str, wanted: "Filter", columns: tuple[str, ...], *, as_json: bool
) -> None:
    from ..printing import print_json, print_rows
    from ..reading import open_run, rows

    with exit_codes():
        reader = open_run(lake, name)
        found = rows(reader, table, wanted)
        reader.close()
        if as_json:
            print_json(found)
        else:
            print_rows(found, columns)


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
    from ...stores.schemas import plain
    from ..benchmarking import evaluate_run
    from ..printing import print_json, print_results

    with exit_codes(), reporting() as reporter:
        found = evaluate_run(lake, name, iteration, prompts, reporter)
    if as_json:
        print_json(plain(found))
    else:
        print_results(found)
