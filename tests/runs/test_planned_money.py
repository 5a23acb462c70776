"""A plan predicts a run's cost, by model and verb; the run then costs about as much."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import judges
import pytest
from http_server import answering
from world import Silent

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import RunConfig
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import required_prompts, run_loop
from lpfloop.loop.daemon.planning import plan_run
from lpfloop.loop.run.stop import NothingToTrainOn, StopSignal
from lpfloop.policies.engines.engine import Request, Sampling
from lpfloop.stores.journal_reader import Reader
from lpfloop.stores.lake import run_folder
from lpfloop.stores.records import Message

WITHIN = 1.25
"""Maximal ratio of cost and plan, in both directions, for a plan from earlier measurements."""
GREEDY = Sampling(temperature=0.0, top_p=1.0, max_tokens=600)
SETTINGS = (
    "policy.engine={kind: scripted, script: 'scripts:policy'}",
    "critic.kind=verifier",
    "reward.model=none",
    "completion.pool=policy",
    "recipe.n=4",
    "training.min_pairs=1000000",
    "prompts.max_test=4",
    "prompts.max_dev=4",
    "prompts.chunk=10",
    "assessment={reference: null, reward: false, kl: false, oracle: null, probes: null}",
    "grading.engine={kind: openai, model_name: m, concurrency: 8}",
    "prices.models={m: {prompt: 1000, completion: 3000}}",
)


def graded(messages: list[dict[str, str]]) -> str:
    shown = tuple(Message(role=m["role"], content=m["content"]) for m in messages)
    return judges.by_figure(Request(request_id="", messages=shown, seed=1), GREEDY)


@pytest.fixture
def grader() -> Iterator[str]:
    """A grader that counts a token for every three letters of its input and output."""
    with answering(graded, lambda read, said: (len(read) // 3, len(said) // 3)) as url:
        yield url


def config_of(url: str, prompts: int) -> RunConfig:
    sizes = (f"prompts.per_iteration={prompts}", f"prompts.parts.preference={prompts}")
    named = (f"grading.model={url}", "prompts.parts.unlabeled=0")
    return load_config("tiny", "ultrafeedback-dpo", (*SETTINGS, *sizes, *named), {})


def spent(config: RunConfig, lake: Path, name: str) -> float:
    """Run until there is too little to train on; return the cost."""
    with pytest.raises(NothingToTrainOn):
        run_loop(Job(config=config, lake=lake, name=name), Silent(), StopSignal())
    with closing(Reader(run_folder(lake, name))) as journal:
        return journal.total_cost().money


def test_plan_costs_what_the_run_does(tmp_path, grader):
    small, large = (config_of(grader, n) for n in (6, 24))
    unknown = plan_run(large, required_prompts(large, tmp_path), tmp_path)
    paid_before = spent(small, tmp_path, "small")
    plan = plan_run(large, required_prompts(large, tmp_path), tmp_path)
    paid = spent(large, tmp_path, "large")
    assert paid > 3 * paid_before > 0
    assert 1 / WITHIN < plan.total("money") / paid < WITHIN
    assert unknown.total("money") > paid, "the most that it may cost"
    assert set(plan.bills) == {"m"}
    assert plan.bills["m"] == {"grade": pytest.approx(plan.total("money"))}
