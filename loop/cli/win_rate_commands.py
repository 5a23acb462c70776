"""`lpfloop eval winrate`: the win-rate of stored annotations, recomputed."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..lake.query.forms import Form, FormError
from .common import AsForm, AsJson, ByField, exit_codes

if TYPE_CHECKING:
    from ...stores.keys import Json
    from ..evaluation.win_rate_report import Standing

FITTED = ("length_controlled_win_rate", "length_controlled_standard_error", "length_effect")
TABLE = ("of", "win_rate", "standard_error", "length_controlled_win_rate", "n")


def winrate(
    *,
    preferences: Annotated[Path, typer.Option(help="File of preferences in AlpacaEval's format.")],
    by: ByField = None,
    versus: Annotated[
        Path | None,
        typer.Option("--against", help="Also show the lead over this: the model of another file."),
    ] = None,
    difficulty: Annotated[
        Path | None, typer.Option(help="File that says how hard each instruction is to win on.")
    ] = None,
    form: AsForm = Form.AUTO,
    as_json: AsJson = False,
) -> None:
    """Compute a win-rate from a file of preferences."""
    with exit_codes():
        _write(preferences, by, versus, difficulty, form, as_json=as_json)


def _write(
    preferences: Path,
    by: str | None,
    versus: Path | None,
    difficulty: Path | None,
    form: Form,
    *,
    as_json: bool,
) -> None:
    """Write the win-rate of a file of annotations in AlpacaEval's format.

    As one JSON document it holds only the win-rate, and what `by` and `versus` ask for; in other
    formats it is a row for the model, and one for each group.

    Raises:
        InputError: for a file that cannot be used, or a rival's that cannot be compared with it.
    """
    import polars as pl

    from ..evaluation.alpaca_eval import read_annotations, source_of
    from ..evaluation.result_sources import refuse_unlike
    from ..evaluation.win_rate_report import generator_of, lead, standings, won
    from ..lake.query.row_output import is_table, write_frame
    from ..run.terminal import say
    from .tables import print_json

    is_table(form, as_json=as_json)
    if as_json and difficulty is not None:
        raise FormError("--difficulty is for the figure at equal lengths: use --format jsonl")
    found = read_annotations(preferences, by=by)
    ahead = None
    if versus is not None:
        rival = read_annotations(versus)
        refuse_unlike(source_of(preferences, found), source_of(versus, rival))
        ahead = lead(found, rival)
    if as_json:
        document: dict[str, Json] = dict(asdict(won(found)))
        if by is not None:
            _, *groups = standings("", found)
            document["groups"] = {group.of: asdict(group.won) for group in groups}
        if ahead is not None:
            document["lead"] = asdict(ahead)
        print_json(document)
        return
    stood = standings(generator_of(found, preferences), found, difficulty)
    write_frame(pl.DataFrame([_row(standing) for standing in stood]), form, TABLE)
    for remark in (remark for standing in stood for remark in _remarks(standing)):
        say(remark)
    if ahead is not None:
        low, high = ahead.interval
        say(
            f"ahead of {versus} by {ahead.value:.2f} points, 95 % interval [{low:.2f}, {high:.2f}],"
            f" on {ahead.n} instructions"
        )


def _remarks(standing: "Standing") -> "Iterator[str]":
    """Say why there is no figure at equal lengths, or why it is to be taken with care."""
    from ..evaluation.length_control import Uncontrolled

    controlled = standing.controlled
    if isinstance(controlled, Uncontrolled):
        yield f"{standing.of}, no figure at equal lengths: {controlled.reason}"
    else:
        yield from (f"{standing.of}, at equal lengths: {remark}" for remark in controlled.remarks)


def _row(standing: "Standing") -> "dict[str, Json]":
    from ..evaluation.length_control import LengthControlled

    rate, controlled = standing.won, standing.controlled
    fitted = (None, None, None)
    if isinstance(controlled, LengthControlled):
        fitted = (controlled.win_rate, controlled.standard_error, controlled.length_effect)
    return {
        "of": standing.of,
        **asdict(rate),
        "interval": list(rate.interval),
        **dict(zip(FITTED, fitted, strict=True)),
        "mean_length": standing.mean_length,
        "reference_length": standing.reference_length,
    }
