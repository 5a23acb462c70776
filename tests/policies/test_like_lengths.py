# pyright: basic
"""Rows of like length in a pass, in the same optimizer steps; a reference that is asked once."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from trainings import DPO, dpo_job, make_world

from lpfloop.policies.trainers.train_model import TrainJob, TrainResult, train
from lpfloop.policies.trainers.training_fit import TrainingFit

LENGTHS = [5, 9, 2, 7, 7, 1, 8, 3, 6, 4, 2]


@pytest.mark.model
@pytest.mark.parametrize("epoch", [0, 3])
def test_a_step_has_the_rows_that_chance_gave_it(epoch: int) -> None:
    from accelerate.data_loader import SeedableRandomSampler

    from lpfloop.policies.trainers.like_lengths import LikeLengths

    grouped = LikeLengths(LENGTHS, step=4, seed=7)
    plain = SeedableRandomSampler(LENGTHS, data_seed=7)
    for sampler in (grouped, plain):
        sampler.set_epoch(epoch)
    mine, theirs = list(grouped), list(plain)
    assert len(grouped) == len(mine) == len(LENGTHS)
    for start in range(0, len(mine), 4):
        step = mine[start : start + 4]
        assert sorted(step) == sorted(theirs[start : start + 4])
        lengths = [LENGTHS[row] for row in step]
        assert lengths == sorted(lengths, reverse=True)
    assert mine != theirs


@pytest.mark.model
def test_batches_hold_all_rows_and_no_more_tokens_than_they_may() -> None:
    from lpfloop.policies.trainers.like_lengths import token_batches

    batches = list(token_batches(LENGTHS, 18))
    assert sorted(row for batch in batches for row in batch) == list(range(len(LENGTHS)))
    assert all(len(batch) * max(LENGTHS[row] for row in batch) <= 18 for batch in batches)
    assert len(batches) < len(LENGTHS) / 2
    assert list(token_batches([30, 1], 18)) == [[0], [1]]


@pytest.mark.model
def test_the_longest_sequence_of_a_row_is_its_length_up_to_where_it_is_cut() -> None:
    from datasets import Dataset

    from lpfloop.policies.trainers.like_lengths import row_lengths

    answers: dict[str, Any] = {"chosen_ids": [[1], [1, 2]], "rejected_ids": [[1, 2, 3], []]}
    assert row_lengths(Dataset.from_dict(answers), 9) == [3, 2]
    pairs = {"prompt_ids": [[4, 5], [6]], **answers, "prompt": ["a", "b"]}
    assert row_lengths(Dataset.from_dict(pairs), 4) == [4, 3]
    assert row_lengths(Dataset.from_dict({"input_ids": [[1, 2], []]}), 9) == [2, 0]


@pytest.mark.model
def test_what_is_kept_of_a_reference_is_used_whole_or_not_at_all(tmp_path: Path) -> None:
    from lpfloop.policies.trainers.reference_logprobs import keep_reference, read_kept

    path, values = tmp_path / "references" / "a.json", [[-1.5, -0.1], [-3.25, -2.0]]
    assert read_kept(path, 2) is None
    keep_reference(path, values)
    assert read_kept(path, 2) == values
    assert read_kept(path, 3) is None
    path.write_text(path.read_text().replace("-3.25", "-3.26"))
    assert read_kept(path, 2) is None


def mixed_job(world: Path, output: Path, *, grouped: bool) -> TrainJob:
    """Return a job of three steps over answers of any length."""
    job = dpo_job(world, output)
    settings = DPO.model_copy(update={"epochs": 0.125, "sft_weight": 0.0})
    return replace(job, settings=settings, fit=TrainingFit(group_by_length=grouped))


def rewards(result: TrainResult) -> list[float]:
    return [step[name] for step in result.history for name in ("loss", "grad_norm", "logps/chosen")]


@pytest.mark.slow
@pytest.mark.model
def test_grouped_it_learns_the_same_and_asks_the_reference_once(tmp_path: Path) -> None:
    world, log = make_world(tmp_path), tmp_path / "train.log"
    plain = train(mixed_job(world, tmp_path / "plain" / "work", grouped=False), log=log)
    job = mixed_job(world, tmp_path / "grouped" / "work", grouped=True)
    grouped = train(job, log=log)
    assert rewards(grouped) == pytest.approx(rewards(plain), abs=1e-4)
    (kept,) = (tmp_path / "grouped" / "references").iterdir()
    rest = json.loads(kept.read_text())
    forged = [[chosen - 40, rejected] for chosen, rejected in rest["logprobs"]]
    other = replace(job, output=tmp_path / "grouped" / "other")
    from lpfloop.policies.trainers.reference_logprobs import keep_reference

    keep_reference(kept, forged)
    assert train(other, log=log).history[0]["rewards/chosen"] == pytest.approx(4.0, abs=1e-3)
    kept.write_text(kept.read_text()[:-9])
    again = replace(job, output=tmp_path / "grouped" / "again")
    assert rewards(train(again, log=log)) == rewards(grouped)
    assert json.loads(kept.read_text()) == rest
