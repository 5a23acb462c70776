# pyright: basic
"""Passes of rows with similar lengths, in the same optimizer steps."""

import pytest

LENGTHS = [5, 9, 2, 7, 7, 1, 8, 3, 6, 4, 2]


@pytest.mark.model
def test_rows_of_a_step() -> None:
    from accelerate.data_loader import SeedableRandomSampler

    from lpfloop.policies.trainers.base_trainer import LikeLengths

    grouped = LikeLengths(LENGTHS, step=4, seed=7)
    plain = SeedableRandomSampler(LENGTHS, data_seed=7)
    for sampler in (grouped, plain):
        sampler.set_epoch(3)
    mine, theirs = list(grouped), list(plain)
    assert len(grouped) == len(mine) == len(LENGTHS)
    for start in range(0, len(mine), 4):
        step = mine[start : start + 4]
        assert sorted(step) == sorted(theirs[start : start + 4])
        lengths = [LENGTHS[row] for row in step]
        assert lengths == sorted(lengths, reverse=True)
    assert mine != theirs
