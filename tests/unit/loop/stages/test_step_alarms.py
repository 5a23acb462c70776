"""Alarms by step, from the numbers of PPO and Quark during training."""

import random

from lpfloop.loop.stages.step_alarms import findings

CALM = {"reward": 1.0, "kl": 2.0, "length": 50.0, "entropy": 2.0, "missing_eos": 0.1}


def first_of(kind: str, history: list[dict[str, float]]) -> int | None:
    """Return the first step with an alarm of this kind."""
    steps = range(1, len(history) + 1)
    return next((n for n in steps if kind in {f.kind for f in findings(history[:n])}), None)


def test_limits_of_steps(subtests):
    for kind, after in (
        ("kl", {"kl": 30.0}),
        ("missing_eos", {"missing_eos": 0.6}),
        ("entropy", {"entropy": 0.3}),
        ("length", {"length": 110.0}),
    ):
        with subtests.test(kind=kind):
            history = [CALM] * 10 + [CALM | after] * 5
            found = {f.kind: f for f in findings(history)}
            assert found.keys() == {kind}
            assert first_of(kind, history) in range(11, 16)
            assert not list(findings([CALM] * 20))
            assert not list(findings([CALM | after] * 5)), "there is nothing to compare with yet"


def test_falling_reward():
    draw = random.Random(3)
    risen = [0.1 * n for n in range(10)]
    fallen = [CALM | {"reward": r + draw.gauss(0, 0.02)} for r in [*risen, *(-r for r in risen)]]
    assert 10 < (first_of("reward", fallen) or 0) <= 20
    raised = 0
    for seed in range(100):
        draw = random.Random(seed)
        flat = [CALM | {"reward": draw.gauss(0, 1.0)} for _ in range(60)]
        raised += first_of("reward", flat) is not None
    assert raised <= 5
