"""Lengths of the runs in a comparison at equal tokens, from their trials' tokens."""

from lpfloop.configs.schema import PromptsConfig
from lpfloop.loop.daemon.equal_tokens import EqualComparison, RunSize, compared_size
from lpfloop.loop.daemon.suite import Suite
from lpfloop.loop.evaluation.token_course import SpentUnit, TokenCost

OWN = 100_000


def spent(iteration: int, policy: int, judges: int = 0, *, step: int | None = None) -> SpentUnit:
    cost = TokenCost(policy_tokens=policy, judge_tokens=judges)
    return SpentUnit(iteration=iteration, stage="any", step=step, cost=cost)


def test_prompts_by_both_iterations_of_a_trial() -> None:
    tried = RunSize(iterations=2, units=100)
    units = [spent(1, 10_000, 2_000), spent(2, 5_000, 2_000)]
    assert compared_size(units, tried, OWN, 5_000) == RunSize(iterations=4, units=376)
    assert compared_size(units, tried, OWN, 200) == RunSize(iterations=8, units=200)


def test_steps_by_the_later_half_of_a_trial() -> None:
    steps = [spent(1, 100 if step <= 195 else 200, step=step) for step in range(1, 391)]
    tried = RunSize(method="ppo", units=390)
    more = (94_000 - 1_000 - 195 * 300) // 200
    size = compared_size([spent(1, 1_000), *steps], tried, OWN, 500)
    assert size == RunSize(method="ppo", units=390 + more)


def test_methods_answer_the_same_prompts(tmp_path, monkeypatch):
    measured = dict[str, PromptsConfig]()

    def trial_size(self: EqualComparison, recipe: str) -> tuple[RunSize, int]:
        measured[recipe] = self._config(recipe, 0).prompts
        return RunSize(), 0

    monkeypatch.setattr(EqualComparison, "_trial_size", trial_size)
    monkeypatch.setattr(EqualComparison, "_choose", lambda *_: None)
    suite = Suite(
        config="paper", recipes=(), seeds=(0,), lake=tmp_path, prefix="s", overrides=(), env={}
    )
    comparison = EqualComparison(
        suite=suite, budget=1, trials=1, turn=lambda _: None, note=lambda _: None
    )
    assert comparison.run(["rlrf", "dpo", "grpo"]) == []
    parts = {(p.held_out, p.held_out_share, p.turns, p.input, p.chunk) for p in measured.values()}
    assert (len(measured), len(parts)) == (3, 1)
