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

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property

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
from ..run.served import is_endpoint

BALANCE = Verb("balance")
FILTER = "balance_length"
LONGER_WINS, LONGER_LOSES, EQUAL = "longer_wins", "longer_loses", "equal"
"""On which side of its bucket a pair is: a surplus is dropped for this reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceDecision:
    """The fate of a pair: its bucket, its side, and whether it is kept."""

    bucket: LengthBucket
    side: str
    kept: bool


def balance_length(
    it: Iteration, pairs: Rows[Pair], candidates: Rows[Candidate] | None = None
) -> Rows[Pair]:
    """Commit the kept pairs under the rule `RULE/balanced`; unchanged if balancing is off.

    `candidates` are the sources of the pairs, None if they are from elsewhere. The rows keep their
    chunks, though the choice of the kept ones depends on all of them.
    """
    config = it.run.config.pairs
    if not config.balance_length:
        return pairs
    balancing = _Balancing(it=it, pairs=pairs, candidates=candidates)
    read = (pairs,) if candidates is None else (pairs, candidates)
    params: dict[str, Json] = {"bucket_width": config.bucket_width}
    if candidates is None or _is_endpoint(it) or _others(it):
        # If M_0's engine counted all tokens, the key stays without `counted_by`.
        exact = balancing.count is not about
        params["counted_by"] = it.run.models.initial.identity if exact else about.__name__
    work = it.work(BALANCE, params, *read)

    def reads() -> list[tuple[str, ...]]:
        chunks = work.reads()
        every = digest([list(keys) for keys in chunks])
        return [(every, str(chunk)) for chunk in range(len(chunks))]

    def make(unit: Unit) -> RowsByType:
        rows, counts = balancing.chunk(unit.chunk)
        return {Pair: as_arrow(rows), FilterCount: counts}

    return it.rows(Pair, f"balance:{pairs.label}", replace(work, reads=reads), make)


def _is_endpoint(it: Iteration) -> bool:
    """Whether M_0 is an endpoint: no tokenizer is available and its counts are not comparable."""
    initial = it.run.models.initial
    kind = initial.engine.kind
    return kind == "openai" or (kind == "auto" and is_endpoint(initial.location))


def _others(it: Iteration) -> list[str]:
    """Return the names of the other models of the pool, which answer the run's prompts, too."""
    completers = it.run.completers
    return [] if completers is None else [model.name for model in completers.others]


def fates(longer: Mapping[str, int], width: int, seed: int) -> dict[str, BalanceDecision]:
    """Decide about all pairs at once, by id; `longer` is each pair's |y_w| - |y_l|."""
    sides = dict[LengthBucket, dict[str, list[str]]]()
    for pair_id, more in longer.items():
        side = LONGER_WINS if more > 0 else LONGER_LOSES if more < 0 else EQUAL
        sides.setdefault(bucket_of(more, width), {}).setdefault(side, []).append(pair_id)
    found = dict[str, BalanceDecision]()
    for bucket, own in sides.items():
        kept = min(len(own.get(side, ())) for side in (LONGER_WINS, LONGER_LOSES))
        for side, ids in own.items():
            drawn = sorted(ids, key=lambda name: (derive_seed(seed, "balance", name), name))
            for place, pair_id in enumerate(drawn):
                keeps = side == EQUAL or place < kept
                found[pair_id] = BalanceDecision(bucket=bucket, side=side, kept=keeps)
    return found


@dataclass(frozen=True, kw_only=True)
class _Balancing:
    """The balancing of one stage; the fates of all pairs are decided once, when first needed."""

    it: Iteration
    pairs: Rows[Pair]
    candidates: Rows[Candidate] | None

    @cached_property
    def count(self) -> TokenCount:
        """How the tokens of a text are counted."""
        return token_count(self.it.run.models.initial.location)

    def chunk(self, chunk: int) -> tuple[pl.DataFrame, list[FilterCount]]:
        """Return the kept pairs of a chunk, under their new ids, and filter counts by bucket."""
        rows = self._table(self.pairs, chunk)
        fates = {pair_id: self._fates[pair_id] for pair_id in rows["pair_id"]}
        buckets = dict[LengthBucket, dict[str, list[str]]]()
        for pair_id, fate in fates.items():
            outcome = KEPT if fate.kept else fate.side
            buckets.setdefault(fate.bucket, {}).setdefault(outcome, []).append(pair_id)
        kept = [pair_id for pair_id, fate in fates.items() if fate.kept]
        return balanced_rows(rows.filter(pl.col("pair_id").is_in(kept))), [
            counted
            for bucket, outcomes in sorted(buckets.items())
            for counted in filter_counts(self.it.number, f"{FILTER}/{bucket}", "pairs", outcomes)
        ]

    @cached_property
    def _fates(self) -> Mapping[str, BalanceDecision]:
        config, chunks = self.it.run.config, range(self.pairs.chunks)
        longer = dict(each for chunk in chunks for each in self._lengths(chunk))
        return fates(longer, config.pairs.bucket_width, config.seed)

    def _lengths(self, chunk: int) -> Iterator[tuple[str, int]]:
        """Yield each pair with |y_w| - |y_l|: by the counts of both answers, else of both texts."""
        known, tokens = self._counts(chunk), cache(self.count)
        texts = (_text(side) for side in ("chosen", "rejected"))
        pairs = self._table(self.pairs, chunk).select("pair_id", "chosen_id", "rejected_id", *texts)
        for pair_id, chosen_id, rejected_id, chosen, rejected in pairs.iter_rows():
            if chosen_id in known and rejected_id in known:
                yield pair_id, known[chosen_id] - known[rejected_id]
            else:
                yield pair_id, tokens(chosen) - tokens(rejected)

    def _counts(self, chunk: int) -> dict[str, int]:
        """Return the token counts that M_0's engine gave for candidates of a chunk.

        Answers with reasoning are excluded: their count includes the reasoning.
        """
        if self.candidates is None or _is_endpoint(self.it):
            return {}
        own = (
            (pl.col("completion_tokens") > 0)
            & pl.col("reasoning").is_null()
            & ~pl.col("model").is_in(_others(self.it))
        )
        found = self._table(self.candidates, chunk).filter(own)
        return dict(found.select("candidate_id", "completion_tokens").iter_rows())

    def _table(self, rows: Rows[Pair] | Rows[Candidate], chunk: int) -> pl.DataFrame:
        store = self.it.run.store
        keys = (stage.key(store.journal, chunk) for stage in rows.stages)
        return pl.concat(as_frame(store.table(rows.row_type, key)) for key in keys)


def _text(side: str) -> pl.Expr:
    """Return the text of an answer of a pair."""
    content = pl.element().struct.field("content")
    return pl.col(side).list.eval(content).list.join("\n")
