"""Alarms by step: what the numbers of PPO and Quark say while they train, and when that stops."""

import random

from lpfloop.configs.alarms import AlarmsConfig
from lpfloop.loop.stages.step_alarms import findings

CALM = {"reward": 1.0, "kl": 2.0, "length": 50.0, "entropy": 2.0, "missing_eos": 0.1}


def first_of(kind: str, history: list[dict[str, float]], config: AlarmsConfig) -> int | None:
    """Return the first step at which a kind of alarm is raised."""
    steps = range(1, len(history) + 1)
    return next((n for n in steps if kind in {f.kind for f in findings(history[:n], config)}), None)


def test_limits_of_steps(subtests):
    for kind, after in (
        ("kl", {"kl": 30.0}),
        ("missing_eos", {"missing_eos": 0.6}),
        ("entropy", {"entropy": 0.3}),
        ("length", {"length": 110.0}),
    ):
        with subtests.test(kind=kind):
            config = AlarmsConfig(step_window=2)
            history = [CALM] * 4 + [CALM | after] * 3
            found = {f.kind: f for f in findings(history, config)}
            assert found.keys() == {kind}
            assert first_of(kind, history, config) == 6
            assert not list(findings([CALM] * 9, config))
            assert not list(findings([CALM | after] * 2, config)), (
                "there is nothing to compare with yet"
            )


def test_falling_reward():
    config = AlarmsConfig()
    draw = random.Random(3)
    risen = [0.1 * n for n in range(10)]
    fallen = [CALM | {"reward": r + draw.gauss(0, 0.02)} for r in [*risen, *(-r for r in risen)]]
    assert 10 < (first_of("reward", fallen, config) or 0) <= 20
    raised = 0
    for seed in range(100):
        draw = random.Random(seed)
        flat = [CALM | {"reward": draw.gauss(0, 1.0)} for _ in range(60)]
        raised += first_of("reward", flat, config) is not None
    assert raised <= 5
