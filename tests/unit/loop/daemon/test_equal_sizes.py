"""How long runs at equal tokens are, and which settings each method tries."""

from lpfloop.loop.daemon.equal_sizes import (
    RunSize,
    UnitCost,
    final_size,
    trial_size,
)
from lpfloop.loop.evaluation.token_course import TokenBudget


def test_sizes_of_runs():
    budget = TokenBudget(policy_tokens=100_000, judge_tokens=10_000)
    cost = UnitCost(once=(0.0, 0.0), each=(100.0, 20.0), later=(50.0, 20.0))
    assert trial_size(cost, budget, "", 500) == RunSize(iterations=2, prompts=100)
    tried = RunSize(iterations=2, prompts=100)
    assert final_size(cost, budget, tried, 5_000) == RunSize(iterations=4, prompts=117)
    own = TokenBudget(policy_tokens=100_000)
    assert final_size(cost, own, tried, 5_000).prompts == 376, "100 + 3 * 50 a prompt"
    assert final_size(cost, own, tried, 200) == RunSize(iterations=8, prompts=200)
    steps = UnitCost(once=(1_000.0, 0.0), each=(100.0, 0.0), later=(200.0, 0.0))
    assert trial_size(steps, own, "ppo", 500) == RunSize(method="ppo", steps=390)
    longer = final_size(steps, own, RunSize(method="ppo", steps=390), 500)
    assert longer.steps == 390 + 270
