"""The learning rate of online methods by step, against the rules of the papers' own code."""

from collections.abc import Sequence

import pytest
import torch

from lpfloop.configs.methods import PPOTraining, QuarkTraining
from lpfloop.policies.online.online_trainer import make_schedule

PEAK, WARMUP, STEPS, UPDATES = 1e-5, 5, 390, 4


def rates(settings: PPOTraining | QuarkTraining, *, ticks: int) -> Sequence[float]:
    """Return the rate before each of so many calls of the schedule."""
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=PEAK)
    schedule = make_schedule(optimizer, settings, steps=STEPS, updates=UPDATES)
    found = list[float]()
    for _ in range(ticks):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()  # pyright: ignore[reportUnknownMemberType]
        schedule.step()
    return found


def original(step: int) -> float:
    """Return AlpacaFarm's rate in a step: transformers' linear schedule, one tick a step."""
    done = step - 1
    if done < WARMUP:
        return PEAK * done / WARMUP
    return PEAK * max(0.0, (STEPS - done) / (STEPS - WARMUP))


def test_by_step(subtests):
    for kind in [PPOTraining, QuarkTraining]:
        with subtests.test(kind=kind):
            found = rates(kind(warmup_steps=WARMUP, schedule_by="step"), ticks=STEPS)
            assert found == pytest.approx([original(step) for step in range(1, STEPS + 1)])
            assert found[:3] == pytest.approx([0.0, 0.2e-5, 0.4e-5])


def test_by_update():
    found = rates(PPOTraining(warmup_steps=WARMUP), ticks=STEPS * UPDATES + 1)
    assert found[:6] == pytest.approx([PEAK * n / 6 for n in range(1, 7)])
    assert found[-1] == 0.0
    assert found[STEPS * UPDATES // 2] == pytest.approx(PEAK * 780 / 1555)
