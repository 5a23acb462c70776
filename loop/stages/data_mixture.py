"""A mix of rows of several kinds, in which each row is repeated by the weight of its kind.

A row with the weight 2 is there twice, one with 0.5 in every second case. The run's seed draws
these rows unit by unit, so that a kind's share of each unit is its weight (up to one row) and no
kind is favoured over all units. The rows keep their sources; their rule marks them as the rows to
train on.
"""

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence

import polars as pl

from ...stores.frames import as_arrow, as_frame
from ...stores.journal_reader import Unit
from ...stores.keys import derive_seed, row_id
from ...stores.records import FilterCount, Statistic
from ...stores.schemas import TABLES, RowsByType
from ..data.filter_counts import KEPT, filter_counts
from ..data.training_rows import WEIGHED, made_by
from ..run.handles import D, Rows, Trainable
from ..run.iteration import Iteration
from ..run.run import Run, Verb, Work

WEIGH = Verb("weigh")
LEFT_OUT = "left_out"
ID = {
    "pairs": "pair_id",
    "demonstrations": "demonstration_id",
    "unpaired_answers": "unpaired_id",
}
BEFORE_TRAINING = 0
"""The step of the statistics about the rows that a training learns from."""


def weigh(
    it: Iteration, handles: Sequence[Rows[D]], weights: Mapping[str, float], *, others: float = 1.0
) -> Rows[D]:
    """Commit the rows of all handles as one mix, each by its rule's weight, by default `others`.

    The handles need not share their prompts: each of their units becomes one of the mix.
    """
    journal, store, row_type = it.run.store.journal, it.run.store, handles[0].row_type
    stages = [stage for handle in handles for stage in handle.stages]
    places = [(stage, chunk) for stage in stages for chunk in range(stage.chunks)]
    work = Work(
        verb=WEIGH,
        params={"weights": dict(weights), "others": others},
        upstream=tuple(stage.identity for stage in stages),
        reads=lambda: [(key,) for stage in stages for key in stage.keys(journal)],
    )

    def make(unit: Unit) -> RowsByType:
        stage, chunk = places[unit.chunk]
        key = stage.key(journal, chunk)
        it.run.flow.await_unit(key)
        rows, name = as_frame(store.table(row_type, key)), ID[TABLES[row_type]]
        rules = rows["rule"].to_list()
        counts = copies(rules, weights, others, derive_seed(it.run.config.seed, unit.key))
        taken, ids, fates = list[int](), list[str](), dict[str, list[str]]()
        for place, (rule, old, count) in enumerate(
            zip(rules, rows[name].to_list(), counts, strict=True)
        ):
            taken += [place] * count
            prefix = old.partition("-")[0]
            ids += [row_id(prefix, [WEIGHED, old, copy]) for copy in range(count)]
            times = f", {count} times" if count > 1 else ""
            fate = f"{KEPT}: {made_by(rule)}{times}" if count else f"{LEFT_OUT}: {made_by(rule)}"
            fates.setdefault(fate, []).append(old)
        made = rows[taken].with_columns(
            pl.Series(name, ids, dtype=pl.String), rule=pl.col("rule") + pl.lit(WEIGHED)
        )
        return {
            row_type: as_arrow(made),
            FilterCount: filter_counts(it.number, WEIGH.name, "rows", fates),
        }

    return it.rows(row_type, WEIGH.name, work, make)


def copies(
    rules: Sequence[str], weights: Mapping[str, float], others: float, seed: int
) -> list[int]:
    """Return the number of copies of each row of a unit.

    Of n rows of a rule with the weight w, floor(w n + u) copies are made in all, u drawn from [0,
    1): so small units are not rounded away.
    """
    counts = [0] * len(rules)
    for rule in dict.fromkeys(rules):
        places = [place for place, other in enumerate(rules) if other == rule]
        draw = random.Random(derive_seed(seed, rule))
        weight = weights.get(made_by(rule), others)
        total = math.floor(weight * len(places) + draw.random())
        each, more = divmod(total, len(places))
        chosen = set(draw.sample(places, more))
        for place in places:
            counts[place] = each + (place in chosen)
    return counts


def mix_statistics(run: Run, iteration: int, method: str, rows: Trainable) -> list[Statistic]:
    """Return how many rows of each kind a training learns from, if they are a mix."""
    keys = [key for s in rows.stages if s.stage == WEIGH.name for key in s.keys(run.store.journal)]
    tables = (as_frame(run.store.table(rows.row_type, key)) for key in keys)
    counts = Counter(made_by(rule) for table in tables for rule in table["rule"].to_list())
    return [
        Statistic(
            iteration=iteration,
            method=method,
            step=BEFORE_TRAINING,
            metric=f"rows/{kind}",
            value=float(count),
        )
        for kind, count in sorted(counts.items())
    ]
