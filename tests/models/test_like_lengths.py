# pyright: basic
"""Rows of like length in a pass, in the same optimizer steps; a reference that is asked once."""

from pathlib import Path

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


@pytest.mark.model
def test_token_batches() -> None:
    from lpfloop.policies.trainers.base_trainer import token_batches

    batches = list(token_batches(LENGTHS, 18))
    assert sorted(row for batch in batches for row in batch) == list(range(len(LENGTHS)))
    assert all(len(batch) * max(LENGTHS[row] for row in batch) <= 18 for batch in batches)
    assert len(batches) < len(LENGTHS) / 2
    assert list(token_batches([30, 1], 18)) == [[0], [1]]


@pytest.mark.model
def test_kept_reference(tmp_path: Path) -> None:
    from lpfloop.policies.trainers.reference_logprobs import keep_reference, read_kept

    path, values = tmp_path / "references" / "a.json", [[-1.5, -0.1], [-3.25, -2.0]]
    assert read_kept(path, 2) is None
    keep_reference(path, values)
    assert read_kept(path, 2) == values
    assert read_kept(path, 3) is None
    path.write_text(path.read_text().replace("-3.25", "-3.26"))
    assert read_kept(path, 2) is None
