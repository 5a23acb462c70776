"""Annotators that share pairs get their drawn pairs, each in as few requests as possible."""

import pytest

from lpfloop.critics.annotators.annotator_pool import load_pool
from lpfloop.loop.daemon.shared_work import DRAWN, drawn_pairs
from lpfloop.loop.run.judge_panel import JudgePanel

POOL = load_pool("alpacafarm")


def test_pairs_and_requests_of_annotators() -> None:
    prompts = 3 * DRAWN
    for pairs, flips, keyed_on in [
        (1.0, 0.25, "pair"),
        (2.0, 0.0, "instruction"),
        (1.5, 0.0, "pair"),
    ]:
        panel = JudgePanel(pool=POOL, flip_probability=flips)
        drawn = drawn_pairs(
            panel, prompts=prompts, pairs_a_prompt=pairs, chunk=32, keyed_on=keyed_on, seed=7
        )
        shown = (1 - 2 * flips) * pairs * prompts
        assert sum(each.pairs for each in drawn.values()) == pytest.approx(shown, rel=0.05)
        for annotator in panel.annotators:
            each = drawn[annotator.name]
            assert each.pairs == pytest.approx(shown / len(panel.annotators), rel=0.35)
            assert each.pairs / annotator.batch_size <= each.requests <= each.pairs
