"""Bucket-based length balancing: no bucket of pairs favours longer answers (ChatGLM-RLHF 3.3).

People and judges prefer longer answers, and a reward model learns that preference sooner than
quality. So pairs are put into buckets by the absolute difference of their answers' lengths. In each
bucket, as many pairs are kept whose chosen answer is longer as pairs whose chosen answer is
shorter; a random surplus is dropped. Pairs of equal length carry no length bias and are all kept.

Lengths are tokens of M_0's tokenizer: the engine's counts if M_0's engine sampled both answers,
else both texts are counted here. Other models and endpoints count with other tokenizers and include
hidden text such as reasoning, so their counts are not used. If M_0 is an endpoint its tokenizer is
not available, and lengths are estimated as one token per three bytes of UTF-8 (one Chinese
character, or three Latin letters).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache

import polars as pl

from ...policies.engines.token_count import TokenCount, about, token_count
from ...policies.trainers.length_bias import LengthBucket, bucket_of
from ...stores.frames import as_arrow, as_frame
from ...stores.journal_reader import Unit
from ...stores.keys import Json, derive_seed, digest
from ...stores.records import Candidate, FilterCount, Pair
from ...stores.schemas import RowsByType
from ..data.filter_counts import KEPT, filter_counts
from ..data.training_rows import balanced_rows
from ..run.handles import Rows
from ..run.iteration import Iteration
from ..run.run import Verb

BALANCE = Verb("balance")
FILTER = "balance_length"
LONGER_WINS, LONGER_LOSES, EQUAL = "longer_wins", "longer_loses", "equal"
"""On which side of its bucket a pair is: a surplus is dropped for this reason."""
Decided = tuple[LengthBucket, str]
"""The bucket of a pair, and its outcome: kept, or the side with a surplus."""


def balance_length(
    it: Iteration, pairs: Rows[Pair], candidates: Rows[Candidate] | None = None
) -> Rows[Pair]:
    """Commit the kept pairs under the rule `RULE/balanced`; unchanged if balancing is off.

    `candidates` are the sources of the pairs, None if they are from elsewhere. The rows keep their
    chunks, though the choice of the kept ones depends on all of them.
    """
    config, initial = it.run.config, it.run.models.initial
    if not config.pairs.balance_length:
        return pairs
    width, count = config.pairs.bucket_width, cache(lambda: token_count(initial.location))
    read = (pairs,) if candidates is None else (pairs, candidates)
    params: dict[str, Json] = {"bucket_width": width}
    if candidates is None or initial.is_elsewhere or _others(it):
        # If M_0's engine counted all tokens, the key stays without `counted_by`.
        params["counted_by"] = initial.identity if count() is not about else about.__name__
    work = it.work(BALANCE, params, *read)

    def reads() -> list[tuple[str, ...]]:
        chunks = work.reads()
        every = digest([list(keys) for keys in chunks])
        return [(every, str(chunk)) for chunk in range(len(chunks))]

    @cache
    def decided() -> Mapping[str, Decided]:
        """Decide about all pairs once, when a chunk first needs it."""
        longer = dict[str, int]()
        for chunk in range(pairs.chunks):
            known = _counts(it, candidates, chunk)
            longer.update(_lengths(_table(it, pairs, chunk), known, count))
        return fates(longer, width, config.seed)

    def make(unit: Unit) -> RowsByType:
        rows, buckets = _table(it, pairs, unit.chunk), dict[LengthBucket, dict[str, list[str]]]()
        kept = list[str]()
        for pair_id in rows["pair_id"]:
            bucket, outcome = decided()[pair_id]
            buckets.setdefault(bucket, {}).setdefault(outcome, []).append(pair_id)
            kept += [pair_id] if outcome == KEPT else []
        counts = [
            counted
            for bucket, outcomes in sorted(buckets.items())
            for counted in filter_counts(it.number, f"{FILTER}/{bucket}", "pairs", outcomes)
        ]
        balanced = balanced_rows(rows.filter(pl.col("pair_id").is_in(kept)))
        return {Pair: as_arrow(balanced), FilterCount: counts}

    return it.rows(Pair, f"balance:{pairs.label}", replace(work, reads=reads), make)


def _others(it: Iteration) -> list[str]:
    """Return the names of the other models of the pool, which answer the run's prompts, too."""
    completers = it.run.completers
    return [] if completers is None else [model.name for model in completers.others]


def fates(longer: Mapping[str, int], width: int, seed: int) -> dict[str, Decided]:
    """Return the bucket of each pair, and whether it is kept; `longer` is its |y_w| - |y_l|."""
    sides = dict[LengthBucket, dict[str, list[str]]]()
    for pair_id, more in longer.items():
        side = LONGER_WINS if more > 0 else LONGER_LOSES if more < 0 else EQUAL
        sides.setdefault(bucket_of(more, width), {}).setdefault(side, []).append(pair_id)
    found = dict[str, Decided]()
    for bucket, own in sides.items():
        kept = min(len(own.get(side, ())) for side in (LONGER_WINS, LONGER_LOSES))
        for side, ids in own.items():
            drawn = sorted(ids, key=lambda name: (derive_seed(seed, "balance", name), name))
            for place, pair_id in enumerate(drawn):
                found[pair_id] = bucket, KEPT if side == EQUAL or place < kept else side
    return found


def _lengths(
    pairs: pl.DataFrame, known: Mapping[str, int], count: Callable[[], TokenCount]
) -> Iterator[tuple[str, int]]:
    """Yield each pair with |y_w| - |y_l|: by the counts of both answers, else of both texts."""
    tokens = cache(count())
    content = pl.element().struct.field("content")
    texts = (pl.col(side).list.eval(content).list.join("\n") for side in ("chosen", "rejected"))
    rows = pairs.select("pair_id", "chosen_id", "rejected_id", *texts)
    for pair_id, chosen_id, rejected_id, chosen, rejected in rows.iter_rows():
        if chosen_id in known and rejected_id in known:
            yield pair_id, known[chosen_id] - known[rejected_id]
        else:
            yield pair_id, tokens(chosen) - tokens(rejected)


def _counts(it: Iteration, candidates: Rows[Candidate] | None, chunk: int) -> dict[str, int]:
    """Return the token counts that M_0's engine gave for candidates of a chunk.

    Answers with reasoning are excluded: their count includes the reasoning. An endpoint's counts
    are not comparable.
    """
    if candidates is None or it.run.models.initial.is_elsewhere:
        return {}
    own = (
        (pl.col("completion_tokens") > 0)
        & pl.col("reasoning").is_null()
        & ~pl.col("model").is_in(_others(it))
    )
    found = _table(it, candidates, chunk).filter(own)
    return dict(found.select("candidate_id", "completion_tokens").iter_rows())


def _table(it: Iteration, rows: Rows[Pair] | Rows[Candidate], chunk: int) -> pl.DataFrame:
    store = it.run.store
    keys = (stage.key(store.journal, chunk) for stage in rows.stages)
    return pl.concat(as_frame(store.table(rows.row_type, key)) for key in keys)
