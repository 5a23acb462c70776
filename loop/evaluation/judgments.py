"""Judgments of pairs of outputs, by people and by judges, collected and counted.

A pair is an instruction with two outputs, in any order. Judgments of the same outputs from several
sources count for the same pair.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...stores.records import Order, Preferred
from ..lake.statistics.bootstrap import Numbers
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
class Topic:
    """The task type of all pairs of an instruction that lack a task type."""

    instruction: str
    task: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPair:
    """Two outputs for one instruction, and the task type of the pair if its row has one."""

    instruction: str
    first: JudgedOutput
    second: JudgedOutput
    task: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgment:
    """One verdict on a pair; `preferred` is None if it could not be read.

    `shown` is the order in which the judge saw the outputs, if known. `orders_agreed` is set for a
    verdict made from two, one in each order: whether these were the same. `price` is the verdict's
    cost, if known.
    """

    pair: OutputPair
    annotator: str
    human: bool
    preferred: Preferred | None
    shown: Order | None = None
    orders_agreed: bool | None = None
    price: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Votes:
    """The verdicts of one annotator, or of several together.

    `counts` has shape (pairs, orders, labels), `reconciled` (pairs, 2): of the verdicts made from
    two, how many come from two that disagreed, and from two that agreed. `missing` has shape
    (pairs, orders): how many replies could not be read. `price` is the mean cost of the verdicts
    whose price is recorded.
    """

    name: str
    counts: NDArray[np.int64]
    reconciled: NDArray[np.int64]
    missing: NDArray[np.int64]
    price: float | None = None

    @property
    def labels(self) -> Counts:
        """How often each verdict was given, in any order; shape (pairs, 3)."""
        return self.counts.sum(axis=1)

    @property
    def number(self) -> int:
        """How many verdicts there are."""
        return int(self.counts.sum())

    @property
    def unread(self) -> int:
        """How many replies could not be read."""
        return int(self.missing.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class DisputedTask:
    """A pair whose instruction has rows of several task types, so that it gets no type."""

    instruction: str
    tasks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgments:
    """All judgments of some sources. Arrays have one entry a pair.

    `instructions` numbers the instructions; `longer` and `lists` are 1 if the second output is
    longer, or the only one with a list, -1 if the first is, and 0 otherwise. `tasks` are the task
    types, `models` the authors of the first and the second output; None is unknown. `disputed` are
    the pairs with several task types. `ballots` has each person's votes: pair and label.
    """

    instructions: NDArray[np.int64]
    tasks: tuple[str | None, ...]
    disputed: tuple[DisputedTask, ...]
    models: tuple[tuple[str | None, str | None], ...]
    longer: Numbers
    lists: Numbers
    people: Votes
    judges: tuple[Votes, ...]
    ballots: Mapping[str, Sequence[tuple[int, int]]]


def has_list(text: str) -> bool:
    """Whether at least two lines begin like items of a list."""
    return len(LIST_LINE.findall(text)) >= LIST_LINES


def together(name: str, votes: Iterable[Votes]) -> Votes:
    """Return the verdicts of several annotators as one pool."""
    pool = list(votes)
    paid = [(each.price, each.number) for each in pool if each.price is not None and each.number]
    return Votes(
        name=name,
        counts=np.sum([each.counts for each in pool], axis=0),
        reconciled=np.sum([each.reconciled for each in pool], axis=0),
        missing=np.sum([each.missing for each in pool], axis=0),
        price=_mean_price(paid) if len(paid) == len(pool) else None,
    )


def _mean_price(paid: Sequence[tuple[float, int]]) -> float | None:
    """Return the mean of prices, weighted by their numbers of verdicts."""
    count = sum(number for _, number in paid)
    return sum(price * number for price, number in paid) / count if count else None


def collect(items: Iterable[OutputPair | Judgment | Topic]) -> Judgments:
    """Collect judgments by pair; items of type `OutputPair` add the texts of outputs.

    Only the first vote of a person on a pair counts. Pairs of equal outputs, and pairs without
    judgments, are left out.
    """
    gathered = _Gathered()
    for item in items:
        if isinstance(item, Topic):
            gathered.file(item)
            continue
        pair = item if isinstance(item, OutputPair) else item.pair
        if pair.first.key != pair.second.key:
            gathered.learn(pair)
            if isinstance(item, Judgment):
                gathered.add(_in_order(item))
    return gathered.judgments()


def _in_order(judgment: Judgment) -> Judgment:
    """Return the judgment with the outputs in the order of their keys, whichever came first."""
    pair = judgment.pair
    if pair.first.key < pair.second.key:
        return judgment
    return replace(
        judgment,
        pair=replace(pair, first=pair.second, second=pair.first),
        preferred=judgment.preferred and TURNED[judgment.preferred],
        shown=judgment.shown and TURNED_ORDER[judgment.shown],
    )


class _Gathered:
    """The judgments so far; pairs are numbered in order of arrival."""

    def __init__(self) -> None:
        self._texts: dict[tuple[str, str], str] = {}
        self._pairs: dict[tuple[str, str, str], int] = {}
        self._people: dict[tuple[int, str], Judgment] = {}
        self._judges: dict[str, list[tuple[int, Judgment]]] = defaultdict(list)
        self._topics = defaultdict[str, set[str]](set)
        self._tasks = defaultdict[tuple[str, frozenset[str]], set[str]](set)
        self._models: list[tuple[str | None, str | None]] = []

    def file(self, topic: Topic) -> None:
        """Keep the task type of an instruction."""
        self._topics[topic.instruction].add(topic.task)

    def learn(self, pair: OutputPair) -> None:
        """Keep the texts and the task type of a pair, if it has them."""
        if pair.task is not None:
            self._tasks[pair.instruction, _keys(pair)].add(pair.task)
        for output in (pair.first, pair.second):
            if output.text is not None:
                self._texts[pair.instruction, output.key] = output.text

    def add(self, judgment: Judgment) -> None:
        """Add a judgment whose outputs are in order."""
        pair = judgment.pair
        key = (pair.instruction, pair.first.key, pair.second.key)
        number = self._pairs.setdefault(key, len(self._pairs))
        if number == len(self._models):
            self._models.append((pair.first.model, pair.second.model))
        if judgment.human:
            self._people.setdefault((number, judgment.annotator), judgment)
        else:
            self._judges[judgment.annotator].append((number, judgment))

    def judgments(self) -> Judgments:
        """Return the counts of all added judgments."""
        people = [(number, judgment) for (number, _), judgment in self._people.items()]
        instructions: dict[str, int] = {}
        numbers = [instructions.setdefault(key[0], len(instructions)) for key in self._pairs]
        tasks = [self._told(*key) for key in self._pairs]
        return Judgments(
            instructions=np.array(numbers, dtype=np.int64),
            tasks=tuple(told[0] if len(told) == 1 else None for told in tasks),
            disputed=tuple(
                DisputedTask(instruction=key[0], tasks=told)
                for key, told in zip(self._pairs, tasks, strict=True)
                if len(told) > 1
            ),
            models=tuple(self._models),
            longer=self._signs(_longer),
            lists=self._signs(_lists),
            people=self._votes("people", people),
            judges=tuple(self._votes(name, given) for name, given in sorted(self._judges.items())),
            ballots=self._ballots(),
        )

    def _told(self, instruction: str, first: str, second: str) -> tuple[str, ...]:
        """Return the task types of a pair: its own, else its instruction's."""
        own = self._tasks.get((instruction, frozenset((first, second))))
        return tuple(sorted(own or self._topics.get(instruction, ())))

    def _ballots(self) -> dict[str, list[tuple[int, int]]]:
        found = defaultdict[str, list[tuple[int, int]]](list)
        for (number, name), judgment in self._people.items():
            if judgment.preferred is not None:
                found[name].append((number, LABELS[judgment.preferred]))
        return dict(found)

    def _votes(self, name: str, given: Iterable[tuple[int, Judgment]]) -> Votes:
        counts = np.zeros((len(self._pairs), len(ORDERS), len(LABELS)), dtype=np.int64)
        reconciled = np.zeros((len(self._pairs), 2), dtype=np.int64)
        missing = np.zeros((len(self._pairs), len(ORDERS)), dtype=np.int64)
        paid = list[tuple[float, int]]()
        for number, judgment in given:
            if judgment.price is not None:
                paid.append((judgment.price, 1))
            if judgment.preferred is None:
                missing[number, ORDERS[judgment.shown]] += 1
                continue
            counts[number, ORDERS[judgment.shown], LABELS[judgment.preferred]] += 1
            if judgment.orders_agreed is not None:
                reconciled[number, int(judgment.orders_agreed)] += 1
        return Votes(
            name=name,
            counts=counts,
            reconciled=reconciled,
            missing=missing,
            price=_mean_price(paid),
        )

    def _signs(self, sign: Callable[[str, str], int]) -> Numbers:
        """Return the sign of each pair; 0 if a text is unknown."""
        signs = np.zeros(len(self._pairs))
        for (instruction, *keys), number in self._pairs.items():
            first, second = (self._texts.get((instruction, key)) for key in keys)
            if first is not None and second is not None:
                signs[number] = sign(first, second)
        return signs


def _keys(pair: OutputPair) -> frozenset[str]:
    return frozenset((pair.first.key, pair.second.key))


def _longer(first: str, second: str) -> int:
    more = len(second) - len(first)
    return 0 if abs(more) <= LONGER_BY else 1 if more > 0 else -1


def _lists(first: str, second: str) -> int:
    return int(has_list(second)) - int(has_list(first))
