"""The learning rate of online methods."""

from collections.abc import Sequence

import pytest
import torch

from lpfloop.configs.methods import PPOTraining
from lpfloop.policies.online.online_trainer import make_schedule

PEAK, WARMUP, STEPS, UPDATES = 1e-5, 5, 390, 4


def rates(settings: PPOTraining, *, ticks: int) -> Sequence[float]:
    """Return the rate before each of so many calls of the schedule."""
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=PEAK)
    schedule = make_schedule(optimizer, settings, steps=STEPS, updates=UPDATES)
    found = list[float]()
    for _ in range(ticks):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()  # pyright: ignore[reportUnknownMemberType]
        schedule.step()
    return found


def test_by_update():
    found = rates(PPOTraining(warmup_steps=WARMUP), ticks=STEPS * UPDATES + 1)
    assert found[:6] == pytest.approx([PEAK * n / 6 for n in range(1, 7)])
    assert found[-1] == 0.0
    assert found[STEPS * UPDATES // 2] == pytest.approx(PEAK * 780 / 1555)
