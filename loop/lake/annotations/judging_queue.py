# pyright: basic
"""Which answers of a run people judge, and in which order: the most informative come first.

Models' ratings, rewards and the verifier's verdicts show which answers judges disagree on. They
decide only the order: people see none of them. There is one item a prompt, whose answers resemble
each other; an order depends only on the seed and on the stored rows.
"""

import json
from dataclasses import asdict, dataclass
from typing import Literal, Self, get_args

import polars as pl

from ....configs.mistakes import did_you_mean
from ....stores.keys import canonical_json, derive_seed, digest
from ....stores.lake import RunReader
from ...data.assignments import Overlap
from ...data.files import InputError
from ...data.judged_candidates import VISIBLE, is_trusted
from ..query.critic_scores import verified_answers

Judged = Literal["ratings", "pairs"]
SamplingRule = Literal["disagreement", "random"]
RULES: tuple[SamplingRule, ...] = get_args(SamplingRule)
ITEMS = 500
OVERLAP = Overlap(share=0.2, people=2)
PROMPTS = 4000
"""Of more prompts, so many are drawn before answers are ordered: a run may have millions."""
WHOLE = (
    pl.col("kind").is_in(["sample", "refinement", "external"]),
    pl.col("finish_reason") == "stop",
)
WORDS = 2**32


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRequest:
    """The items for people to judge: answers or pairs, their rule, task and iteration."""

    judged: Judged = "ratings"
    rule: SamplingRule = "disagreement"
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


def rule_named(name: str) -> SamplingRule:
    """Return a sampling rule by its name.

    Raises:
        InputError: if the name is unknown.
    """
    for rule in RULES:
        if rule == name:
            return rule
    raise InputError(
        f"--order {name}: no such order; {did_you_mean(name, RULES)}the orders are "
        f"{', '.join(RULES)}"
    )


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
        InputError: if the run lacks answers to judge, or the signals that the rule sorts by.
    """
    signals = _signals(run, _answers(run, request), request)
    if request.judged == "pairs":
        found = _pairs(signals, request)
        ids = ["first", "second"]
    else:
        found = signals.with_columns(score=_score(request, pl.col("conflict")))
        ids = ["candidate_id"]
    order = {"by": ["score", "mixed"], "descending": [True, False], "nulls_last": True}
    best = found.sort(**order).unique("prompt_id", keep="first", maintain_order=True)
    rows = best.head(request.items).select("prompt_id", *ids).rows()
    if not rows:
        raise InputError(
            f"run {run.folder.name} contains no prompt with two different whole answers"
        )
    return [
        JudgedItem(prompt_id=prompt_id, ids=tuple(found), aspect=request.aspect).name
        for prompt_id, *found in rows
    ]


def _answers(run: RunReader, request: QueueRequest) -> pl.DataFrame:
    """Return the whole answers among which the rule chooses, equal texts of a prompt once."""
    iteration = _iteration(run, request.iteration)
    prompts = _prompts(run, iteration, request)
    columns = {"candidate_id", "prompt_id", "iteration", "kind", "finish_reason", "text"}
    found = (
        run.scan("candidates", columns=columns, iteration=iteration)
        .filter(*WHOLE, pl.col("prompt_id").is_in(prompts.implode()))
        .filter(pl.col("text").str.contains(VISIBLE))
        .group_by("prompt_id", "text")
        .agg(pl.col("candidate_id").min(), pl.col("iteration").first())
        .select("candidate_id", "prompt_id", "iteration")
        .collect(engine="streaming")
    )
    if found.is_empty():
        raise InputError(f"run {run.folder.name} contains no whole answers there to judge")
    return found


def _iteration(run: RunReader, iteration: int | None) -> int:
    """Return the iteration whose answers are judged: by default the last that has any."""
    parts = run.journal.parts(table="candidates")
    iterations = sorted({part.iteration for part in parts if part.rows}, reverse=True)
    columns = {"kind", "finish_reason"}
    for number in iterations if iteration is None else [n for n in iterations if n == iteration]:
        there = run.scan("candidates", columns=columns, iteration=number).filter(*WHOLE)
        if there.head(1).collect().height:
            return number
    have = ", ".join(map(str, reversed(iterations))) or "none"
    where = "" if iteration is None else f"--iteration {iteration}: "
    raise InputError(
        f"{where}run {run.folder.name} contains no whole answers there to judge; it has answers of "
        f"iterations {have}"
    )


def _prompts(run: RunReader, iteration: int, request: QueueRequest) -> pl.Series:
    """Return the prompts whose answers are ordered: at most so many, drawn by the seed."""
    prompts = run.scan("prompts", columns={"prompt_id", "task"}).unique("prompt_id").collect()
    tasks = sorted(set(prompts["task"]))
    if request.task is not None and request.task not in tasks:
        raise InputError(f"--task {request.task}: the run's tasks are {', '.join(tasks)}")
    if request.task is not None:
        prompts = prompts.filter(pl.col("task") == request.task)
    columns = {"prompt_id", "kind", "finish_reason"}
    answered = (
        run.scan("candidates", columns=columns, iteration=iteration)
        .filter(*WHOLE)
        .select(pl.col("prompt_id").unique())
        .collect(engine="streaming")
    )
    drawn = prompts.join(answered, on="prompt_id", how="semi").sort("prompt_id")
    return drawn.sort(_tie_breaker("prompt_id", request.seed)).head(PROMPTS)["prompt_id"]


def _signals(run: RunReader, answers: pl.DataFrame, request: QueueRequest) -> pl.DataFrame:
    """Return the answers with the judgments of models and verifier, as numbers."""
    iteration, ids = int(answers["iteration"][0]), answers["candidate_id"].implode()
    rated = _rate_answers(run, iteration, ids, request.aspect)
    rewards = (
        run.scan("rewards", columns={"candidate_id", "score"}, iteration=iteration)
        .filter(pl.col("score").is_not_null(), pl.col("candidate_id").is_in(ids))
        .select("candidate_id", reward="score")
        .collect(engine="streaming")
    )
    scores = rewards.unique("candidate_id", keep="last", maintain_order=True)
    right = verified_answers(run, iteration).select("candidate_id", "right").unique("candidate_id")
    found = (
        answers.join(rated, on="candidate_id", how="left")
        .join(scores, on="candidate_id", how="left")
        .join(right, on="candidate_id", how="left")
    )
    counts = found.select(pl.col("rating", "reward").count()).row(0)
    if request.rule != "random" and not any(counts):
        raise InputError(
            f"--order {request.rule}: no model has rated these answers, of "
            f"{request.aspect or 'any aspect'}; take --order random"
        )
    place, size = pl.col("reward").rank("average"), pl.col("reward").count()
    return found.with_columns(
        # The best answer of its prompt by reward has 1, the worst 0.
        rank=pl.when(size > 1).then((place - 1) / (size - 1)).over("prompt_id"),
        mixed=_tie_breaker("candidate_id", request.seed),
    ).with_columns(conflict=_conflict())


def _rate_answers(
    run: RunReader, iteration: int, ids: pl.Series, aspect: str | None
) -> pl.DataFrame:
    """Return of each answer the models' mean rating, how far they differ, whether all are 1."""
    columns = {"candidate_id", "critic", "aspects"}
    each = (
        run.scan("critiques", columns=columns, iteration=iteration)
        .filter(~is_trusted("critic"), pl.col("candidate_id").is_in(ids))
        .select("candidate_id", "aspects")
        .explode("aspects")
        .with_columns(pl.col("aspects").struct.unnest())
        .drop("aspects", "comment")
    )
    if aspect is not None:
        each = each.filter(pl.col("name") == aspect)
    rating = pl.col("rating")
    aspects = each.group_by("candidate_id", "name").agg(
        rating=rating.mean(),
        spread=(rating.max() - rating.min()) / 2,
        passed=(rating == 1).all(),
    )
    return (
        aspects.group_by("candidate_id")
        .agg(pl.col("rating", "spread").mean(), pl.col("passed").all())
        .collect()
    )


def _conflict() -> pl.Expr:
    """How far judges contradict each other: critic and verifier, critics, critic and reward."""
    passed = pl.col("passed").cast(pl.Float64)
    parts = (
        (pl.col("passed") != pl.col("right")).cast(pl.Float64),
        pl.col("spread"),
        (passed - pl.col("rank")).abs(),
    )
    return pl.sum_horizontal(part.fill_null(0) for part in parts)


def _score(request: QueueRequest, conflict: pl.Expr) -> pl.Expr:
    """Return the sort key, the highest first."""
    return conflict if request.rule == "disagreement" else pl.lit(0.0)


def _pairs(signals: pl.DataFrame, request: QueueRequest) -> pl.DataFrame:
    """Return all pairs of answers of a prompt, scored by the rule."""
    columns = ["prompt_id", "candidate_id", "rating", "rank", "conflict", "mixed"]
    sides = signals.select(columns)
    both = sides.join(sides, on="prompt_id", suffix="_other").filter(
        pl.col("candidate_id") < pl.col("candidate_id_other")
    )
    rating = (pl.col("rating") - pl.col("rating_other")) / 2
    rank = pl.col("rank") - pl.col("rank_other")
    # The critic prefers one, the reward model the other.
    opposed = pl.coalesce(-rating * rank, 0.0)
    return both.select(
        "prompt_id",
        first="candidate_id",
        second="candidate_id_other",
        score=_score(request, opposed + (pl.col("conflict") + pl.col("conflict_other")) / 4),
        mixed=(pl.col("mixed") + pl.col("mixed_other")) % WORDS,
    )


def _tie_breaker(identity: str, seed: int) -> pl.Expr:
    """Return a number by which equal scores are ordered: another one for each seed.

    Ids end with a hash, so multiplying its last digits by an odd number mixes them well.
    """
    odd = derive_seed(seed, "judging") % (WORDS // 2) * 2 + 1
    digits = pl.col(identity).str.slice(-7).str.to_integer(base=16, strict=False).fill_null(0)
    # The low bits of a product depend on the low bits alone, so the high ones come first.
    product = (digits * odd) % WORDS
    return (product // 65536 + product % 65536 * 65536).cast(pl.Int64)
