"""Counts of filters: how many items each kept and dropped, why, with a few ids of each.

A filter that keeps items for several reasons adds the reason: `kept: unjudged`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby

from ...stores.keys import Json
from ...stores.records import FilterCount, Filtered, Prompt

KEPT = "kept"
EXAMPLES = 5
"""The most ids in a filter count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterOutcome:
    """How many items had one outcome over all of a filter's units, with a few of their ids."""

    outcome: str
    count: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A filter's counts in an iteration: how many items came in, went out, and why."""

    filter: str
    items: Filtered
    outcomes: tuple[FilterOutcome, ...]

    @property
    def received(self) -> int:
        """How many items came in."""
        return sum(outcome.count for outcome in self.outcomes)

    @property
    def kept(self) -> int:
        """How many items went out."""
        return sum(outcome.count for outcome in self.outcomes if keeps(outcome.outcome))

    def as_json(self) -> dict[str, Json]:
        """Return the fields and the two sums, for a JSON document."""
        outcomes = [asdict(outcome) for outcome in self.outcomes]
        return {
            "filter": self.filter,
            "items": self.items,
            "received": self.received,
            "kept": self.kept,
            "outcomes": outcomes,
        }


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


def accounts(rows: Sequence[FilterCount]) -> list[Account]:
    """Sum up the counts of each filter, sorted by name; kept outcomes come first."""
    found = list[Account]()
    for (name, items), own in groupby(sorted(rows, key=_filter), key=_filter):
        by_outcome = dict[str, list[FilterCount]]()
        for row in own:
            by_outcome.setdefault(row.outcome, []).append(row)
        outcomes = [_outcome(outcome, parts) for outcome, parts in by_outcome.items()]
        outcomes.sort(key=lambda entry: (not keeps(entry.outcome), entry.outcome))
        found.append(Account(filter=name, items=items, outcomes=tuple(outcomes)))
    return found


def _filter(row: FilterCount) -> tuple[str, Filtered]:
    return row.filter, row.items


def _outcome(outcome: str, parts: Sequence[FilterCount]) -> FilterOutcome:
    examples = [example for part in parts for example in part.examples][:EXAMPLES]
    return FilterOutcome(
        outcome=outcome, count=sum(part.count for part in parts), examples=tuple(examples)
    )
