"""The studies of AlpacaFarm, UltraFeedback and ChatGLM-RLHF: what they measure, and their pages."""

import math

import polars as pl
import pytest

from lpfloop.loop.studies.chatglm_reference import kl_at, optimised, rise
from lpfloop.loop.studies.farm_figures import rank_correlation


def test_rank_correlation_with_ties():
    assert rank_correlation([3, 2, 1], [30, 20, 10]) == pytest.approx(1)
    assert rank_correlation([3, 2, 1], [1, 2, 3]) == pytest.approx(-1)
    assert rank_correlation([1, 1, 2], [1, 2, 3]) == pytest.approx(math.sqrt(3) / 2)
    assert rank_correlation([1, 1], [1, 2]) is None


def test_ppo_steps_and_kl():
    rows = pl.DataFrame(
        {
            "step": [1, 1, 2, 2],
            "reward": [-1.0, 1.0, 1.0, 3.0],
            "score": [0.0, 0.0, 2.0, 2.0],
            "kl": [0.0, 0.0, 1.0, 3.0],
        }
    )
    steps = optimised(rows)
    assert (steps[0].reward, steps[1].reward) == (0, 2)
    assert steps[0].deviation == pytest.approx(math.sqrt(2))
    assert rise(steps) == 2
    assert kl_at(steps, 1.0) == 1.0
    assert kl_at(steps, 0.0) == 0.0
    with pytest.raises(ValueError, match="no step reaches"):
        kl_at(steps, 2.5)
