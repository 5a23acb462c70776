"""Estimates as columns of a table, and as fields of rows for programs."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from ...stores.keys import Json
from ..lake.query.row_table import Column
from ..lake.statistics.clustered_estimates import Estimate


def measure_columns(
    rows: Sequence[Mapping[str, Estimate]],
    headings: Mapping[str, str],
    plain: Collection[str] = (),
) -> list[Column]:
    """Return a column for each measure that a row has, with its interval.

    Measures are shares, in percent, except the `plain` ones.
    """
    return [
        (heading, [_cell(row.get(name), plain=name in plain) for row in rows])
        for name, heading in headings.items()
        if any(name in row for row in rows)
    ]


def _cell(found: Estimate | None, *, plain: bool) -> str:
    if found is None:
        return "-"
    known = [end for end in (found.value, found.low, found.high) if end is not None]
    value, *ends = (f"{end:.2f}" if plain else f"{100 * end:.0f}" for end in known)
    return f"{value} [{', '.join(ends)}]" if ends else value


def measure_fields(found: Mapping[str, Estimate], names: Iterable[str]) -> dict[str, Json]:
    """Return each measure's value, the ends of its interval, and the items that it is over."""
    fields = {"": "value", "_low": "low", "_high": "high", "_n": "n"}
    return {
        f"{name}{suffix}": getattr(found.get(name), field, None)
        for name in names
        for suffix, field in fields.items()
    }
