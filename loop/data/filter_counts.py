"""Counts of filters: how many items each kept and dropped, why, with a few ids of each.

A filter that keeps items for several reasons adds the reason: `kept: unjudged`.
"""

from collections.abc import Mapping, Sequence

from ...stores.keys import Json
from ...stores.records import FilterCount, Filtered, Prompt

KEPT = "kept"
EXAMPLES = 5
"""The most ids in a filter count."""


def keeps(outcome: str) -> bool:
    """Whether items of this outcome were kept."""
    return outcome == KEPT or outcome.startswith(f"{KEPT}: ")


def ids_by_fate(prompts: Sequence[Prompt], fates: Sequence[str]) -> dict[str, list[str]]:
    """Return the ids of the prompts of each fate."""
    found = dict[str, list[str]]()
    for prompt, fate in zip(prompts, fates, strict=True):
        found.setdefault(fate, []).append(prompt.prompt_id)
    return found


def filter_counts(
    iteration: int, name: str, items: Filtered, fates: Mapping[str, Sequence[str]]
) -> list[FilterCount]:
    """Return a filter count for each outcome; `fates` has the ids of its items.

    There is always one for `kept`, even with 0 items, so that dropping all is visible.
    """
    return [
        FilterCount(
            iteration=iteration,
            filter=name,
            items=items,
            outcome=outcome,
            count=len(ids),
            examples=tuple(ids[:EXAMPLES]),
        )
        for outcome, ids in sorted({KEPT: (), **fates}.items())
    ]


def accounts(rows: Sequence[FilterCount]) -> list[dict[str, Json]]:
    """Sum up the counts of each filter, sorted by name: how many items came in, went out, and why.

    Kept outcomes come first, each with a few ids.
    """
    by_filter = dict[tuple[str, Filtered], dict[str, list[FilterCount]]]()
    for row in rows:
        own = by_filter.setdefault((row.filter, row.items), {})
        own.setdefault(row.outcome, []).append(row)
    return [
        {
            "filter": name,
            "items": items,
            "received": sum(row.count for parts in own.values() for row in parts),
            "kept": sum(row.count for parts in own.values() for row in parts if keeps(row.outcome)),
            "outcomes": [
                {
                    "outcome": outcome,
                    "count": sum(row.count for row in own[outcome]),
                    "examples": [one for row in own[outcome] for one in row.examples][:EXAMPLES],
                }
                for outcome in sorted(own, key=lambda outcome: (not keeps(outcome), outcome))
            ],
        }
        for (name, items), own in sorted(by_filter.items())
    ]
