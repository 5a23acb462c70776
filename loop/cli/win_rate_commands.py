"""`lpfloop eval winrate`: the win-rate of stored annotations, recomputed."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..data.files import InputError
from ..lake.query.forms import Form
from .common import AsForm, AsJson, ByField, exit_codes

if TYPE_CHECKING:
    from ...stores.keys import Json
    from ..evaluation.win_rate_report import Standing

FITTED = ("length_controlled_win_rate", "length_controlled_standard_error", "length_effect")


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
    """Write the win-rate of a file of annotations in AlpacaEval's format, from 0 to 1.

    As one JSON document it is the model's row, with those of groups and the lead beneath; in other
    formats it is a row for the model, and one for each group. A table tells percent.

    Raises:
        InputError: for a file that cannot be used, or a rival's that cannot be compared with it.
    """
    import polars as pl

    from ..evaluation.alpaca_eval import read_annotations, source_of
    from ..evaluation.result_sources import refuse_unlike
    from ..evaluation.win_rate_report import generator_of, lead, standings
    from ..lake.query.row_output import is_table, write_frame
    from ..run.terminal import say
    from .tables import print_json

    for_people = is_table(form, as_json=as_json)
    found = read_annotations(preferences, by=by)
    ahead = None
    if versus is not None:
        rival = read_annotations(versus)
        refuse_unlike(source_of(preferences, found), source_of(versus, rival))
        ahead = lead(found, rival)
    stood = standings(generator_of(found, preferences), found, difficulty)
    if not stood:
        raise InputError(f"{preferences}: no preference could be read, so there is no win-rate")
    rows = [_row(standing) for standing in stood]
    if as_json:
        document = dict(rows[0])
        if by is not None:
            document["groups"] = {str(row["of"]): row for row in rows[1:]}
        if ahead is not None:
            document["lead"] = asdict(ahead)
        print_json(document)
    elif for_people:
        write_frame(pl.DataFrame([_told(row) for row in rows]), form)
    else:
        write_frame(pl.DataFrame(rows), form)
    for remark in (remark for standing in stood for remark in _remarks(standing)):
        say(remark)
    if ahead is not None and not as_json:
        value, low, high = (100 * number for number in (ahead.value, *ahead.interval))
        say(
            f"ahead of {versus} by {value:.2f} points, 95 % interval [{low:.2f}, {high:.2f}],"
            f" on {ahead.n} instructions"
        )


def _told(row: "dict[str, Json]") -> "dict[str, Json]":
    """Return what a table shows of a row, with win-rates in percent."""
    from ..lake.query.told_figures import figure_label, told_value

    def told(name: str) -> str:
        value = row[name]
        return "-" if not isinstance(value, float) else told_value("win_rate", value)

    return {
        "of": row["of"],
        figure_label("win_rate"): told("win_rate"),
        "±": told("standard_error"),
        figure_label(FITTED[0]): told(FITTED[0]),
        "n": row["n"],
    }


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
