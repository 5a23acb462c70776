"""Tokens that each policy of a run cost, and tokens needed to reach a score."""

from contextlib import closing

import pytest
from lakes import MadeIteration, write_course
from tokens_needed import token_ratio, tokens_to_reach

from lpfloop.loop.evaluation.token_course import TokenCost, token_course
from lpfloop.loop.lake.query.runs import open_run


def course(lake, name="a", **config):
    with closing(open_run(lake, name)) as run:
        return token_course(run, **config)


def test_cost_of_a_policy(tmp_path):
    judged = MadeIteration(policy_tokens=900, judge_tokens=300, judge_calls=30, right=0.5)
    write_course(tmp_path, "a", [judged, MadeIteration(policy_tokens=100, right=0.6)])
    points = course(tmp_path).points
    assert [point.policy.name for point in points] == ["M_0", "M_1", "M_2"]
    assert [point.score("verified") for point in points] == [0.2, 0.5, 0.6]
    assert points[0].cost == TokenCost(), "eval sets and the smoke test do not count"
    one, two = points[1].cost, points[2].cost
    assert (one.policy_tokens, one.judge_tokens, one.judge_calls) == (900, 300, 30)
    assert (two.policy_tokens, two.judge_tokens, two.judge_calls) == (1000, 300, 30)
    assert one.tokens == 1200


def test_cost_of_a_step(tmp_path):
    steps = MadeIteration(
        policy_tokens=40, judge_tokens=10, judge_calls=4, right=[0.3, 0.4, 0.55], steps=[2, 4, 5]
    )
    write_course(tmp_path, "a", [steps])
    points = course(tmp_path).points
    assert [point.policy.name for point in points] == ["M_0", "M_1@2", "M_1@4", "M_1"]
    assert [p.cost.policy_tokens for p in points] == [0, 80, 160, 200]
    assert [p.cost.judge_tokens for p in points] == [0, 20, 40, 50]
    assert [p.cost.judge_calls for p in points] == [0, 8, 16, 20]
    assert [p.score("verified") for p in points] == [0.2, 0.3, 0.4, 0.55]


def test_last_policy_within_budget(tmp_path):
    made = [MadeIteration(policy_tokens=400, right=right) for right in (0.6, 0.3, 0.9)]
    write_course(tmp_path, "a", made)
    found = course(tmp_path)
    assert found.within(1000).points[-1].policy.name == "M_2"
    assert found.within(1200).points[-1].policy.name == "M_3"
    assert found.within(10).points[-1].policy.name == "M_0"


def courses(lake, name, *seeds):
    for seed, made in enumerate(seeds):
        write_course(lake, f"{name}-{seed}", made, config={"seed": seed})
    return [course(lake, f"{name}-{seed}", method=name) for seed in range(len(seeds))]


def test_tokens_to_a_score_interpolate(tmp_path):
    slow = courses(
        tmp_path, "slow", [MadeIteration(policy_tokens=1000, judge_tokens=1000, right=0.6)]
    )
    found = tokens_to_reach(slow, 0.4)
    assert found.by_seed == (pytest.approx(1000.0),), "half of the way from 0.2 to 0.6"
    assert (found.mean, found.low) == (pytest.approx(1000.0), None)
    assert found.remark == "one seed: no interval"
    assert tokens_to_reach(slow, 0.4, of="policy").by_seed == (pytest.approx(500.0),)
    never = tokens_to_reach(slow, 0.7)
    assert (never.by_seed, never.mean, token_ratio(never, never).mean) == ((None,), None, None)


def test_ratio_has_an_interval(tmp_path):
    def made(tokens):
        return [MadeIteration(policy_tokens=tokens, right=0.6)]

    slow = courses(tmp_path, "slow", made(2000), made(2200), made(1900))
    fast = courses(tmp_path, "fast", made(1000), made(1000), made(1000))
    ratio = token_ratio(tokens_to_reach(slow, 0.5), tokens_to_reach(fast, 0.5))
    assert ratio.by_seed == pytest.approx((2.0, 2.2, 1.9))
    assert ratio.low < 2 < ratio.mean < 2.2 < ratio.high < 2.5
    assert (ratio.method, ratio.over, ratio.remark) == ("slow", "fast", "")
