"""What each policy of a run cost to make, and how many tokens a score takes."""

from contextlib import closing

import pytest
from equal_runs import Made, write_course

from lpfloop.loop.evaluation.method_outcomes import MethodOutcome
from lpfloop.loop.evaluation.token_course import TokenBudget, TokenCost, token_course
from lpfloop.loop.evaluation.token_panels import token_panels
from lpfloop.loop.evaluation.tokens_to_reach import token_ratio, tokens_to_reach
from lpfloop.loop.lake.query.runs import open_run


def course(lake, name="a", **config):
    with closing(open_run(lake, name)) as run:
        return token_course(run, **config)


def test_what_a_policy_cost_is_what_was_generated_to_train_it_and_those_before_it(tmp_path):
    judged = Made(policy_tokens=900, judge_tokens=300, judge_calls=30, right=0.5)
    write_course(tmp_path, "a", [judged, Made(policy_tokens=100, right=0.6)])
    points = course(tmp_path).points
    assert [point.policy.name for point in points] == ["M_0", "M_1", "M_2"]
    assert [point.score("verified") for point in points] == [0.2, 0.5, 0.6]
    assert points[0].cost == TokenCost(), "exams and the smoke test do not count"
    one, two = points[1].cost, points[2].cost
    assert (one.policy_tokens, one.judge_tokens, one.judge_calls) == (900, 300, 30)
    assert (two.policy_tokens, two.judge_tokens, two.judge_calls) == (1000, 300, 30)
    assert (one.prompt_tokens, one.tokens) == (11, 1200)


def test_a_policy_on_the_way_cost_the_steps_so_far_with_what_judges_said_in_them(tmp_path):
    steps = Made(
        policy_tokens=40, judge_tokens=10, judge_calls=4, right=[0.3, 0.4, 0.55], steps=[2, 4, 5]
    )
    write_course(tmp_path, "a", [steps])
    points = course(tmp_path).points
    assert [point.policy.name for point in points] == ["M_0", "M_1@2", "M_1@4", "M_1"]
    assert [p.cost.policy_tokens for p in points] == [0, 80, 160, 200]
    assert [p.cost.judge_tokens for p in points] == [0, 20, 40, 50]
    assert [p.cost.judge_calls for p in points] == [0, 8, 16, 20]
    assert [p.score("verified") for p in points] == [0.2, 0.3, 0.4, 0.55]


def test_the_last_policy_within_the_budget_counts_whatever_its_score(tmp_path):
    made = [Made(policy_tokens=400, judge_tokens=100, right=r) for r in (0.6, 0.3, 0.9)]
    write_course(tmp_path, "a", made)
    found = course(tmp_path)
    assert found.within(TokenBudget(policy_tokens=1000)).policy.name == "M_2"
    assert found.within(TokenBudget(policy_tokens=1200)).policy.name == "M_3"
    judged = TokenBudget(policy_tokens=1200, judge_tokens=150)
    assert found.within(judged).policy.name == "M_1", "the tighter of the two decides"
    assert judged.used_by(found.points[1].cost) == pytest.approx(100 / 150)
    assert found.within(TokenBudget(policy_tokens=10)).policy.name == "M_0"


def courses(lake, name, *seeds):
    for seed, made in enumerate(seeds):
        write_course(lake, f"{name}-{seed}", made, config={"seed": seed})
    return [course(lake, f"{name}-{seed}", method=name) for seed in range(len(seeds))]


def test_tokens_to_a_score_lie_on_the_line_between_two_policies(tmp_path):
    slow = courses(tmp_path, "slow", [Made(policy_tokens=1000, judge_tokens=1000, right=0.6)])
    found = tokens_to_reach(slow, 0.4)
    assert found.by_seed == (pytest.approx(1000.0),), "half of the way from 0.2 to 0.6"
    assert (found.mean, found.low) == (pytest.approx(1000.0), None)
    assert found.remark == "one seed: no interval"
    assert tokens_to_reach(slow, 0.4, of="policy").by_seed == (pytest.approx(500.0),)


def test_the_ratio_of_two_methods_has_an_interval_over_seeds(tmp_path):
    def made(tokens):
        return [Made(policy_tokens=tokens, right=0.6)]

    slow = courses(tmp_path, "slow", made(2000), made(2200), made(1900))
    fast = courses(tmp_path, "fast", made(1000), made(1000), made(1000))
    ratio = token_ratio(tokens_to_reach(slow, 0.5), tokens_to_reach(fast, 0.5))
    assert ratio.by_seed == pytest.approx((2.0, 2.2, 1.9))
    assert ratio.low < 2 < ratio.mean < 2.2 < ratio.high < 2.5
    assert (ratio.method, ratio.over, ratio.remark) == ("slow", "fast", "")


def test_a_gain_counts_from_each_runs_own_m_0(tmp_path):
    for seed, initial in enumerate((0.2, 0.5)):
        made = [Made(policy_tokens=1000, right=initial + 0.4)]
        write_course(tmp_path, f"a-{seed}", made, initial=initial, config={"seed": seed})
    found = [course(tmp_path, f"a-{seed}", method="a") for seed in (0, 1)]
    gained = tokens_to_reach(found, 0.1, of="policy", is_gain=True)
    assert gained.by_seed == pytest.approx((250.0, 250.0))
    assert tokens_to_reach(found, 0.7, of="policy").by_seed == (None, pytest.approx(500.0))
    with pytest.raises(ValueError, match="different scores"):
        token_ratio(gained, tokens_to_reach(found, 0.1, of="policy"))


def test_a_method_that_made_no_policy_is_drawn_where_it_began(tmp_path):
    budget = TokenBudget(policy_tokens=500)
    beyond = courses(tmp_path, "a", *[[Made(policy_tokens=1000, right=0.6)]] * 3)
    outcome = MethodOutcome(method="a", budget=budget, courses=tuple(beyond))
    for panel in token_panels([outcome], "verified"):
        (series,) = panel.series
        assert (list(series.x), list(series.y)) == ([0.0], [pytest.approx(20.0)])


def test_a_score_that_is_never_reached_is_a_result(tmp_path):
    found = tokens_to_reach(
        courses(
            tmp_path,
            "poor",
            [Made(policy_tokens=1000, right=0.6)],
            [Made(policy_tokens=1000, right=0.4)],
        ),
        0.5,
    )
    assert found.by_seed[1] is None
    assert (found.mean, found.low, found.high) == (None, None, None)
    assert "never reached within the budget in 1 of 2 runs" in found.remark
    ratio = token_ratio(found, found)
    assert ratio.mean is None
    assert "never reached" in ratio.remark


def test_a_score_that_m_0_has_already_needs_no_tokens_and_has_no_ratio(tmp_path):
    found = tokens_to_reach(courses(tmp_path, "a", [Made(policy_tokens=100, right=0.6)]), 0.1)
    assert (found.by_seed, found.mean) == ((0.0,), None)
    assert "M_0 has it already in 1 of 1 runs" in found.remark


def test_a_metric_that_was_not_measured_is_refused(tmp_path):
    found = courses(tmp_path, "a", [Made(policy_tokens=100, right=0.6)])
    with pytest.raises(ValueError, match="win_rate was measured of no policy"):
        tokens_to_reach(found, 0.5, "win_rate")
