"""Measuring the facts of answers: broken up into statements, judged one by one, and counted."""

from collections.abc import Sequence
from typing import TypeVar

from ...critics.facts.fact_score import fact_metrics
from ...critics.verify import FACTS
from ...stores.journal_reader import Unit
from ...stores.records import Breakdown, Candidate, Claim, Evaluation, Score
from ...stores.schemas import RowsByType
from ..run.handles import Prompts, Rows
from ..run.iteration import Iteration
from ..run.run import Verb
from ..stages.claims import break_up, judge_claims
from .metrics import Clusters, clustered_params, score_of, summarise

MEASURE_FACTS = Verb("measure_facts")
R = TypeVar("R", Breakdown, Claim)


def measure_facts(
    it: Iteration,
    answers: Rows[Candidate],
    prompts: Prompts,
    benchmark: str,
    clusters: Clusters,
) -> None:
    """Measure the facts of answers to the prompts, if some ask for facts and a judge is there."""
    judge = it.run.fact_judge
    if judge is None or not any(p.task == FACTS for chunk in prompts.chunks for p in chunk):
        return
    broken = break_up(it, answers, judge)
    claims = judge_claims(it, broken, judge)

    def make(_: Unit) -> RowsByType:
        scores = [
            score
            for chunk in range(broken.chunks)
            for score in _scores(it, it.chunk(broken, chunk), it.chunk(claims, chunk), benchmark)
        ]
        return {Score: scores, Evaluation: summarise(scores, clusters)}

    work = it.whole(MEASURE_FACTS, clustered_params(benchmark, clusters), broken, claims)
    it.run.make(it.number, f"facts:{benchmark}", work, make)


def _scores(
    it: Iteration, broken: Sequence[Breakdown], claims: Sequence[Claim], benchmark: str
) -> list[Score]:
    stated = by_answer(claims)
    return [
        score_of(it, benchmark, metric, value, prompt=rows[0].prompt_id, candidate=candidate_id)
        for candidate_id, rows in by_answer(broken).items()
        for metric, value in fact_metrics(
            [(row.status, len(row.statements)) for row in rows],
            [(claim.verdict, claim.status) for claim in stated.get(candidate_id, ())],
        )
    ]


def by_answer(rows: Sequence[R]) -> dict[str, list[R]]:
    """Return the rows of each answer."""
    found = dict[str, list[R]]()
    for row in rows:
        found.setdefault(row.candidate_id, []).append(row)
    return found
