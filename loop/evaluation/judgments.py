"""Judgments of pairs of outputs, by people and by judges, collected and counted.

A pair is an instruction with two outputs, in any order. Judgments of the same outputs from several
sources count for the same pair.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...stores.records import Message, Order, Preferred
from ..lake.statistics.clustered_estimates import Numbers
from .judge_statistics import Counts

LABELS: dict[Preferred, int] = {"first": 0, "second": 1, "tie": 2}
ORDERS: dict[Order | None, int] = {"as_given": 0, "swapped": 1, None: 2}
TURNED: dict[Preferred, Preferred] = {"first": "second", "second": "first", "tie": "tie"}
TURNED_ORDER: dict[Order, Order] = {"as_given": "swapped", "swapped": "as_given"}
LONGER_BY = 30
"""The least difference in characters for one output to count as longer, as in AlpacaEval."""
LIST_LINE = re.compile(r"^\s*(?:[-*+•]|\d{1,3}[.)])\s+\S", re.MULTILINE)
LIST_LINES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedOutput:
    """One of the two outputs: its key, and its text and model if the source has them."""

    key: str
    text: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgment:
    """One verdict on two outputs; `preferred` is None if it could not be read.

    `messages` come before the outputs, `instruction` is their text. `shown` is the order in which
    the judge saw the outputs, `price` the verdict's cost, and `task` the task type, if known.
    """

    messages: tuple[Message, ...]
    instruction: str
    first: JudgedOutput
    second: JudgedOutput
    annotator: str
    human: bool
    preferred: Preferred | None
    shown: Order | None = None
    price: float | None = None
    task: str | None = None


Given = tuple[int, Judgment]
"""The number of a pair, and a judgment of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Votes:
    """The verdicts of one annotator, or of several together.

    `counts` has shape (pairs, orders, labels), `missing` (pairs, orders): how many replies could
    not be read. `price` is the mean cost of the verdicts whose price is recorded.
    """

    name: str
    counts: NDArray[np.int64]
    missing: NDArray[np.int64]
    price: float | None = None

    @property
    def labels(self) -> Counts:
        """How often each verdict was given, in any order; shape (pairs, 3)."""
        return self.counts.sum(axis=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgments:
    """All judgments of some sources. Arrays have one entry a pair.

    `instructions` numbers the instructions; `longer` and `lists` are 1 if the second output is
    longer, or the only one with a list, -1 if the first is, and 0 otherwise. `tasks` are the task
    types, None for a pair whose rows name none, or several; `models` the authors of the first and
    the second output; None is unknown.
    """

    instructions: NDArray[np.int64]
    tasks: tuple[str | None, ...]
    models: tuple[tuple[str | None, str | None], ...]
    longer: Numbers
    lists: Numbers
    people: Votes
    judges: tuple[Votes, ...]


def has_list(text: str) -> bool:
    """Whether at least two lines begin like items of a list."""
    return len(LIST_LINE.findall(text)) >= LIST_LINES


def together(name: str, votes: Iterable[Votes]) -> Votes:
    """Return the verdicts of several annotators as one pool."""
    pool = list(votes)
    paid = [(v.price, int(v.counts.sum())) for v in pool if v.price is not None and v.counts.any()]
    return Votes(
        name=name,
        counts=np.sum([each.counts for each in pool], axis=0),
        missing=np.sum([each.missing for each in pool], axis=0),
        price=_mean_price(paid) if len(paid) == len(pool) else None,
    )


def _mean_price(paid: Sequence[tuple[float, int]]) -> float | None:
    """Return the mean of prices, weighted by their numbers of verdicts."""
    count = sum(number for _, number in paid)
    return sum(price * number for price, number in paid) / count if count else None


def collect(judgments: Iterable[Judgment]) -> Judgments:
    """Collect judgments by pair.

    Only the first vote of a person on a pair counts. Pairs of equal outputs are left out.
    """
    pairs: dict[tuple[str, str, str], int] = {}
    first, tasks = list[Judgment](), list[set[str]]()
    people: dict[tuple[str, int], Judgment] = {}
    judges = defaultdict[str, list[Given]](list)
    for judgment in map(_in_order, judgments):
        if judgment.first.key == judgment.second.key:
            continue
        key = (judgment.instruction, judgment.first.key, judgment.second.key)
        number = pairs.setdefault(key, len(pairs))
        if number == len(first):
            first.append(judgment)
            tasks.append(set())
        if judgment.task is not None:
            tasks[number].add(judgment.task)
        if judgment.human:
            people.setdefault((judgment.annotator, number), judgment)
        else:
            judges[judgment.annotator].append((number, judgment))
    instructions: dict[str, int] = {}
    numbers = [instructions.setdefault(key[0], len(instructions)) for key in pairs]
    by_people = [(number, judgment) for (_, number), judgment in people.items()]
    return Judgments(
        instructions=np.array(numbers, dtype=np.int64),
        tasks=tuple(next(iter(named)) if len(named) == 1 else None for named in tasks),
        models=tuple((one.first.model, one.second.model) for one in first),
        longer=_signs(first, _longer),
        lists=_signs(first, _lists),
        people=_votes("people", by_people, len(pairs)),
        judges=tuple(_votes(name, given, len(pairs)) for name, given in sorted(judges.items())),
    )


def _in_order(judgment: Judgment) -> Judgment:
    """Return the judgment with the outputs in the order of their keys, whichever came first."""
    if judgment.first.key < judgment.second.key:
        return judgment
    return replace(
        judgment,
        first=judgment.second,
        second=judgment.first,
        preferred=judgment.preferred and TURNED[judgment.preferred],
        shown=judgment.shown and TURNED_ORDER[judgment.shown],
    )


def _votes(name: str, given: Sequence[Given], pairs: int) -> Votes:
    counts = np.zeros((pairs, len(ORDERS), len(LABELS)), dtype=np.int64)
    missing = np.zeros((pairs, len(ORDERS)), dtype=np.int64)
    for number, judgment in given:
        if judgment.preferred is None:
            missing[number, ORDERS[judgment.shown]] += 1
        else:
            counts[number, ORDERS[judgment.shown], LABELS[judgment.preferred]] += 1
    paid = [(judgment.price, 1) for _, judgment in given if judgment.price is not None]
    return Votes(name=name, counts=counts, missing=missing, price=_mean_price(paid))


def _signs(first: Sequence[Judgment], sign: Callable[[str, str], int]) -> Numbers:
    """Return the sign of each pair; 0 if a text is unknown."""
    texts = [(one.first.text, one.second.text) for one in first]
    return np.array([0 if a is None or b is None else sign(a, b) for a, b in texts], dtype=float)


def _longer(first: str, second: str) -> int:
    more = len(second) - len(first)
    return 0 if abs(more) <= LONGER_BY else 1 if more > 0 else -1


def _lists(first: str, second: str) -> int:
    return int(has_list(second)) - int(has_list(first))
