"""`lpfloop model`: the places of a run's models, and commands to use them."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...stores.address import DEFAULT_LAKE, in_lake
from ..lake.query.forms import FormError
from .options import DocumentOutput, Lake, Output, Replace, run_names

if TYPE_CHECKING:
    from ...stores.lake import RunReader
    from ...stores.records import Checkpoint


WORDS = 2
LOOPBACK, PORT = "127.0.0.1", 8000


def model(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            help="Run (default: the latest with a model) and model: M_T, M_T@STEP, latest, best, "
            "or the beginning of an id; default: the best that the loop keeps, else the latest.",
            metavar="[RUN] [M_T|M_T@STEP|latest|best|ID]",
            autocompletion=run_names,
        ),
    ] = None,
    *,
    lake: Lake = DEFAULT_LAKE,
    every: Annotated[bool, typer.Option("--all", help="List all models of the run.")] = False,
    copy: Annotated[
        Path | None, typer.Option("--copy", help="Copy it into this new folder.", metavar="DIR")
    ] = None,
    force: Replace = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve it as an OpenAI-compatible endpoint, with vLLM.")
    ] = False,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on with --serve; default: 127.0.0.1.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Port to listen on with --serve; default: 8000."),
    ] = None,
    out: DocumentOutput,
) -> None:
    """Show, copy or serve a model of a run.

    Without an option: its id, folder, parents and figures.
    """
    from ..daemon.serve_model import serve_model
    from ..run.terminal import say

    uses = {"--all": every, "--copy": copy is not None, "--serve": serve}
    belonging = {
        "--copy": {"--force": force or None},
        "--serve": {"--host": host, "--port": port},
    }
    _one_use(uses, belonging)
    run, which = _run_and_model(lake, words or [])
    try:
        if every:
            _print_all(run, out)
            return
        checkpoint, why = _chosen(run, which)
        if copy is not None:
            _copy(run, checkpoint, copy, force=force)
        elif serve:
            serve_model(run, checkpoint, host or LOOPBACK, port or PORT, say)
        else:
            _print(run, checkpoint, why, lake, out)
    finally:
        run.close()


def _one_use(uses: Mapping[str, bool], belonging: Mapping[str, Mapping[str, object]]) -> None:
    """Refuse two uses at once, and options of another use."""
    chosen = [name for name, given in uses.items() if given]
    if len(chosen) > 1:
        raise FormError(f"{' and '.join(chosen)} exclude each other: give only one")
    for use, options in belonging.items():
        for option, given in options.items():
            if given is not None and use not in chosen:
                raise FormError(f"{option} belongs to {use}")


def _run_and_model(lake: Path, words: list[str]) -> "tuple[RunReader, str]":
    """Return the run and the model's name in `words`; one word may be either."""
    from ...stores.lake import run_names
    from ..lake.query.model_names import PUBLISHED, model_name, open_with_models
    from ..lake.trace.find_row import find_run

    if len(words) > WORDS:
        raise FormError(f"{len(words)} words: give a run and a model, such as `tiny-rlrf M_2`")
    if len(words) == WORDS:
        return open_with_models(lake, words[0]), words[1]
    if not words or words[0] in run_names(lake):
        return open_with_models(lake, words[0] if words else None), PUBLISHED
    called = model_name(words[0])
    if called is not None:
        return open_with_models(lake, called.run), called.which
    if _is_id(words[0]):
        run, found = find_run(lake, words[0], None)
        return run, found.id
    return open_with_models(lake, words[0]), PUBLISHED


def _is_id(word: str) -> bool:
    from ..lake.query.model_names import ID, SHORTEST_ID

    return len(word) >= SHORTEST_ID and ID.fullmatch(word) is not None


def _chosen(run: "RunReader", which: str) -> "tuple[Checkpoint, str | None]":
    """Return the checkpoint, and why it is the best if `best` was requested."""
    from ..lake.query.best_model import best_model
    from ..lake.query.model_names import BEST, checkpoints, model_of

    if which != BEST:
        return model_of(run, which), None
    best = best_model(run, checkpoints(run))
    return best.checkpoint, str(best)


def _print(
    run: "RunReader", checkpoint: "Checkpoint", why: str | None, lake: Path, out: Output
) -> None:
    from ..lake.trace.model_page import model_page
    from ..lake.trace.published_model import published_model
    from ..lake.trace.terminal_page import print_page

    found = published_model(run, checkpoint)
    document = {**found.as_json(), "best": why}
    out.document(document, lambda: print_page(model_page(found, why, in_lake(lake))))


def _print_all(run: "RunReader", out: Output) -> None:
    from ..lake.trace.model_page import list_models
    from ..run.terminal import say

    models, best = list_models(run)
    columns = (
        "name",
        "checkpoint_id",
        "parent",
        "recipe",
        "steps",
        "value",
        "low",
        "high",
        "state",
    )
    out.rows(models, columns)
    if best is not None and out.is_table:
        say(f"M_{best.checkpoint.iteration} is {best}")


def _copy(run: "RunReader", checkpoint: "Checkpoint", target: Path, *, force: bool) -> None:
    from ..lake.trace.published_model import copy_model
    from ..run.terminal import say

    copy_model(run, checkpoint, target, force=force)
    typer.echo(str(target))
    say(f"{checkpoint.name} of run {run.folder.name}: copied, every byte compared")
