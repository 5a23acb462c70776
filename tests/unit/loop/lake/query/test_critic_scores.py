"""The critic's figures, from stored scores."""

from types import SimpleNamespace
from typing import Any, cast

import polars as pl

from lpfloop.loop.lake.query.critic_scores import critic_scores

ANSWERS = 400


def run_with_scores() -> Any:
    """Return a run of which only these tables and its configuration can be read."""
    answers = [{"prompt_id": f"p{n:03}", "candidate_id": f"c{n:03}"} for n in range(ANSWERS)]
    scores = [
        {**answer, "iteration": 0, "benchmark": "held-out", "metric": metric, "value": value}
        for n, answer in enumerate(answers)
        for metric, value in (
            ("rating:tone", float(n % 3 - 1)),
            ("critic_agreement", float(n % 7 < 4)),
            ("reward", n * 0.1 % 1.3),
        )
    ]
    prompts = [{"prompt_id": answer["prompt_id"], "task": "math"} for answer in answers]
    tables = {"scores": pl.LazyFrame(scores), "prompts": pl.LazyFrame(prompts)}
    return SimpleNamespace(
        journal=SimpleNamespace(meta=lambda _: None), scan=lambda table, **_: tables[table]
    )


def test_same_figures_each_time() -> None:
    found = [critic_scores(cast("Any", run_with_scores())) for _ in range(8)]
    assert found[0][0].n == ANSWERS
    assert found[0][0].reward_auroc is not None
    assert all(scores == found[0] for scores in found)
