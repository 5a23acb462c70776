# pyright: basic
"""Which answers of a run people judge, and in which order: at random, by the seed alone.

So what people say is an unbiased estimate of the answers' quality, and of the critic's. There is
one item a prompt, as its answers resemble each other. Several people judge a share of the items,
so that their agreement can be measured. These come first: begun items are finished before new ones
are begun. Nobody gets an item twice.
"""

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Literal, Self

from ....stores.keys import canonical_json, digest
from ....stores.lake import RunReader
from ...data.files import InputError
from ...data.judged_candidates import VISIBLE
from ..query.duckdb_rows import literal
from ..query.tables import QueryTables

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """`share` of the items, evenly spread over the queue, are judged by `people` people each."""

    share: float
    people: int

    def judges(self, place: int) -> int:
        """Return how many people shall judge the item at a place, counted from 0."""
        begun, ended = place * self.share, (place + 1) * self.share
        several = math.floor(ended + ROUNDING) > math.floor(begun + ROUNDING)
        return self.people if several else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The taken items of a queue: the people at each place, and the places that one person saw.

    A person who skipped an item does not hold it, but has seen it.
    """

    holders: Mapping[int, Collection[str]]
    seen: Collection[int]


def next_place(items: int, overlap: Overlap, taken: Taken) -> int | None:
    """Return the place of the next item for a person, or None if nothing is left for them."""
    fresh = None
    for place in range(items):
        if place in taken.seen:
            continue
        held = len(taken.holders.get(place, ()))
        if 0 < held < overlap.judges(place):
            return place
        if not held and fresh is None:
            fresh = place
    return fresh


Judged = Literal["ratings", "pairs"]
ITEMS = 500
OVERLAP = Overlap(share=0.2, people=2)
PROMPTS = 4000
"""Of more prompts, so many are drawn before their answers are read: a run may have millions."""
WHOLE = "kind in ('sample', 'refinement', 'external') and finish_reason = 'stop'"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRequest:
    """The items for people to judge: answers or pairs, their task and iteration."""

    judged: Judged = "ratings"
    iteration: int | None = None
    task: str | None = None
    aspect: str | None = None
    items: int = ITEMS
    seed: int = 0
    overlap: Overlap = OVERLAP

    @property
    def facts(self) -> str:
        """The request as JSON."""
        return canonical_json(asdict(self))

    @property
    def name(self) -> str:
        """The name of its queue in the ledger."""
        return digest(asdict(self))[:12]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedItem:
    """One answer, or two, of a prompt; `aspect` if it is to be judged in that alone."""

    prompt_id: str
    ids: tuple[str, ...]
    aspect: str | None = None

    @property
    def name(self) -> str:
        """Its name in the ledger, which is the same in every queue."""
        return canonical_json([self.prompt_id, sorted(self.ids), self.aspect])

    @classmethod
    def from_name(cls, name: str) -> Self:
        """Return the item of a name."""
        prompt_id, ids, aspect = json.loads(name)
        return cls(prompt_id=prompt_id, ids=tuple(ids), aspect=aspect)


def queue_items(run: RunReader, request: QueueRequest) -> list[str]:
    """Return the items of a queue, in order.

    Raises:
        InputError: if the run lacks answers to judge.
    """
    where = "" if request.iteration is None else f"--iteration {request.iteration}: "
    if request.task is not None:
        tasks = run.scan("prompts", columns={"task"}).unique().collect()["task"].sort().to_list()
        if request.task not in tasks:
            raise InputError(f"--task {request.task}: the run's tasks are {', '.join(tasks)}")
    number = request.iteration
    if number is None:
        last = f"select max(iteration) as last from candidates where {WHOLE}"
        number = QueryTables(run, last).frame(last)["last"][0]
    sql = _query(request)
    found = QueryTables(run, sql, {"candidates": number}).frame(sql)
    if found.is_empty():
        least = "prompt with two different whole answers"
        if request.judged == "ratings":
            least = "whole answers"
        raise InputError(f"{where}run {run.folder.name} contains no {least} to judge")
    return [
        JudgedItem(prompt_id=prompt_id, ids=tuple(ids), aspect=request.aspect).name
        for prompt_id, ids in found.select("prompt_id", "ids").iter_rows()
    ]


def _query(request: QueueRequest) -> str:
    """Return the SELECT of one item of each prompt, in the order of a hash with the seed."""
    task = "" if request.task is None else f"where task = {literal(request.task)}"
    if request.judged == "ratings":
        items = "select prompt_id, [candidate_id] as ids from answers"
    else:
        items = """select prompt_id, [a.candidate_id, b.candidate_id] as ids
            from answers a join answers b using (prompt_id) where a.candidate_id < b.candidate_id"""
    return f"""select prompt_id, ids from (
    with drawn as (
        select prompt_id from candidates
        where {WHOLE} and prompt_id in (select prompt_id from prompts {task})
        group by prompt_id order by md5(prompt_id || {request.seed}) limit {PROMPTS}),
    answers as (
        select prompt_id, min(candidate_id) as candidate_id from candidates
        where {WHOLE} and regexp_matches(text, {literal(VISIBLE)})
            and prompt_id in (select prompt_id from drawn)
        group by prompt_id, text),
    items as ({items})
    select *, md5(array_to_string(ids, ' ') || {request.seed}) as mixed from items
    qualify row_number() over (partition by prompt_id order by mixed) = 1)
    order by mixed limit {request.items}"""
