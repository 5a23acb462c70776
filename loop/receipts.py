"""What a filter leaves behind: how many items it kept and dropped, why, and a few of each by id."""

from collections.abc import Mapping, Sequence

from ..stores.records import Filtered, Receipt

KEPT = "kept"
EXAMPLES = 5
"""Ids that a receipt names."""


def receipts(
    iteration: int, name: str, items: Filtered, fates: Mapping[str, Sequence[str]]
) -> list[Receipt]:
    """Return a receipt for each outcome; `fates` has the ids of the items that met it.

    There is always one for `kept`, also if nothing was: a filter that dropped all says so.
    """
    return [
        Receipt(
            iteration=iteration,
            filter=name,
            items=items,
            outcome=outcome,
            count=len(ids),
            examples=tuple(ids[:EXAMPLES]),
        )
        for outcome, ids in sorted({KEPT: (), **fates}.items())
    ]
