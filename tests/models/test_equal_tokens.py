"""Two methods of the tiny world at equal tokens, by real models."""

import json
from contextlib import closing

import pytest
from processes import call_command

from lpfloop.loop.evaluation.token_course import token_course
from lpfloop.loop.lake.query.runs import open_run

pytestmark = [pytest.mark.model, pytest.mark.slow]


def test_two_methods_of_the_tiny_world(tmp_path):
    small = ("prompts.max_test=10", "prompts.max_dev=10", "training.min_pairs=4")
    quick = ("policy.engine.kind=transformers", "critic.kind=verifier", "training.ppo.rollouts=32")
    settings = [word for value in (*small, *quick) for word in ("--set", value)]
    asked = ("--policy-tokens", "12000", "--trials", "1", "--seeds", "1", "--run", "eq")
    command = ("run", "--recipes", "reward-only,ppo", *asked, *settings)
    code, stdout, stderr = call_command(tmp_path, *command)
    assert code == 0, stderr
    assert "reward-only" in stdout
    shown = ("compare", "eq-reward-only-0", "eq-ppo-0", "--policy-tokens", "12000", "--json")
    told = json.loads(call_command(tmp_path, *shown)[1])
    rows = {row["method"]: row for row in told["methods"]}
    for method in ("reward-only", "ppo"):
        # A quarter may be lost where the last policy is too long.
        assert 0.7 * 12_000 < rows[method]["policy_tokens"] <= 12_000
        assert rows[method]["kl"] > 0
    assert "--plot eq.svg" in stdout + stderr
    with closing(open_run(tmp_path, "eq-ppo-0")) as opened:
        course = token_course(opened)
    spent = [point.cost.policy_tokens for point in course.points]
    assert spent == sorted(set(spent)), "each policy on the way cost more than the one before"
    before = paid(tmp_path)
    assert call_command(tmp_path, *command)[0] == 0
    assert paid(tmp_path) == before, "nothing is paid twice"


def paid(lake):
    """Return a run's spent tokens and its iterations."""
    told = json.loads(call_command(lake, "status", "eq-ppo-0", "--json")[1])
    return told["spend"]["tokens"], told["iterations"]
