"""Removes comparisons that contradict one another before rows are made (ChatGLM-RLHF, Sec. 3).

When every two answers to a prompt are compared, verdicts can form a cycle: a over b, b over c, c
over a. Then the best answer is undefined. Ties and cycles are removed, cycles by dropping the
fewest comparisons. The comparisons stay in the lake; filter counts list kept and dropped ones.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from ...configs.annotation import AnnotationConfig
from ...configs.schema import ConfigError, RunConfig
from ...stores.keys import Json
from ...stores.records import FilterCount
from ...stores.schemas import Row
from .filter_counts import KEPT, filter_counts

DECIDED = ("first", "second")
"""The verdicts of which rows are made."""
FILTER = "consistency"
TIED, UNREAD, REPEATED, CIRCULAR = "tied", "unread", "repeated", "circular"
"""Why a comparison is dropped; `repeated`: the same two answers were compared again later."""
MOST = 16
"""The most answers to a prompt for which the fewest drops are found: cost doubles with each."""

Decision = tuple[str, str]
"""The preferred candidate's id and the other's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sifted:
    """The comparisons of which rows are made, and filter counts of all, if filtering is on."""

    comparisons: pl.DataFrame
    filter_counts: Sequence[FilterCount]

    @property
    def tables(self) -> Mapping[type[Row], Sequence[FilterCount]]:
        """The tables to commit together with the rows."""
        return {FilterCount: self.filter_counts} if self.filter_counts else {}


def consistency_params(config: AnnotationConfig) -> Mapping[str, Json]:
    """Return the settings that belong to the keys of a stage that makes rows of comparisons."""
    return {"drop_cycles": True} if config.drop_cycles else {}


def require_few_answers(config: RunConfig) -> None:
    """Refuse to look for cycles among more answers than can be searched.

    Raises:
        ConfigError: if `annotation.drop_cycles` is on and the recipe compares too many answers.
    """
    annotation, answers = config.annotation, getattr(config.recipe, "n", 0)
    if annotation.drop_cycles and annotation.comparisons == "all" and answers > MOST:
        raise ConfigError(
            f"recipe.n is {answers}, and annotation.drop_cycles finds the fewest comparisons to "
            f"drop among at most {MOST} answers to a prompt; lower recipe.n, or leave it off"
        )


def drop_cycles(preferences: pl.DataFrame, config: AnnotationConfig, iteration: int) -> Sifted:
    """Drop ties and cycles, if configured; else return all comparisons.

    It reads the columns of `judged_candidates.READ`.
    """
    if not config.drop_cycles:
        return Sifted(comparisons=preferences, filter_counts=())
    counted = preferences.unique(["first_id", "second_id"], keep="last", maintain_order=True)
    decided = counted.filter(pl.col("preferred").is_in(DECIDED))
    circular = [name for of in decided.partition_by("prompt_id") for name in _circular(of)]
    straight = ~pl.col("preference_id").is_in(circular)
    groups = {
        KEPT: decided.filter(straight),
        TIED: counted.filter(pl.col("preferred") == "tie"),
        UNREAD: counted.filter(pl.col("preferred").is_null()),
        CIRCULAR: decided.filter(~straight),
        REPEATED: preferences.join(counted, on="preference_id", how="anti"),
    }
    fates = {name: rows["preference_id"].to_list() for name, rows in groups.items() if len(rows)}
    return Sifted(
        # Tied and unread comparisons become no row, but explain the outcome of a prompt without
        # rows.
        comparisons=counted.filter(straight),
        filter_counts=filter_counts(iteration, FILTER, "comparisons", fates),
    )


def _circular(decided: pl.DataFrame) -> list[str]:
    """Return the ids of the comparisons of one prompt that are dropped, in the order of ids."""
    first = pl.col("preferred") == "first"
    rows = decided.sort("preference_id").select(
        "preference_id",
        pl.when(first).then("first_id").otherwise("second_id").alias("winner"),
        pl.when(first).then("second_id").otherwise("first_id").alias("loser"),
    )
    verdicts = [(winner, loser) for _, winner, loser in rows.iter_rows()]
    return [rows["preference_id"][place] for place in contradicting(verdicts)]


def contradicting(verdicts: Sequence[Decision]) -> list[int]:
    """Return the indices of the fewest verdicts whose removal breaks every cycle.

    This is a minimum feedback arc set, found in time and memory that double with each answer of the
    largest cycle. Ties between such sets are broken by the candidates' ids, which are hashes, so
    neither the order of the verdicts nor the answers' content matters. A candidate is never
    compared with itself.
    """
    names = sorted({name for verdict in verdicts for name in verdict})
    number = {name: place for place, name in enumerate(names)}
    arcs = [(number[winner], number[loser]) for winner, loser in verdicts]
    rank = dict[int, tuple[int, int]]()
    for component, members in enumerate(_components(arcs, len(names))):
        for place, member in enumerate(_best_order(members, arcs)):
            rank[member] = (component, place)
    return [
        place
        for place, (winner, loser) in enumerate(arcs)
        if rank[winner][0] == rank[loser][0] and rank[winner][1] > rank[loser][1]
    ]


def _components(arcs: Sequence[tuple[int, int]], count: int) -> list[list[int]]:
    """Return the strongly connected components: sets whose members reach one another along arcs.

    An arc between two components is never part of a cycle.
    """
    reached = [1 << node for node in range(count)]
    for winner, loser in arcs:
        reached[winner] |= 1 << loser
    for middle in range(count):
        for node in range(count):
            if reached[node] >> middle & 1:
                reached[node] |= reached[middle]
    components = dict[int, list[int]]()
    for node in range(count):
        mutual = (m for m in range(node + 1) if reached[node] >> m & reached[m] >> node & 1)
        components.setdefault(next(mutual), []).append(node)
    return list(components.values())


def _best_order(members: Sequence[int], arcs: Sequence[tuple[int, int]]) -> list[int]:
    """Return the members in the order against which the fewest arcs point.

    Dynamic programming over sets: a set's cost is the least, over the member that comes last, of
    the others' cost plus the arcs from that member back to them.
    """
    size, place = 1 << len(members), {member: n for n, member in enumerate(members)}
    beats = Counter(
        (place[winner], place[loser]) for winner, loser in arcs if {winner, loser} <= {*members}
    )
    # The arcs from each member back to each set: those to the set without one, plus those to it.
    back = [[0] * size for _ in members]
    for member, cost in enumerate(back):
        for chosen in range(1, size):
            lowest = chosen & -chosen
            cost[chosen] = cost[chosen ^ lowest] + beats[member, lowest.bit_length() - 1]
    fewest, last = [0], [-1]
    for chosen in range(1, size):
        inside = (member for member in range(len(members)) if chosen >> member & 1)
        rest = ((chosen & ~(1 << member), member) for member in inside)
        cost, member = min(
            (fewest[others] + back[member][others], member) for others, member in rest
        )
        fewest.append(cost)
        last.append(member)
    order = list[int]()
    left = size - 1
    while left:
        order.append(members[last[left]])
        left &= ~(1 << last[left])
    return order[::-1]
