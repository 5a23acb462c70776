"""Packed rows have the same loss as padded ones, or lpfloop refuses packing."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from trainings import make_world, sft_job

from lpfloop.policies.engines.chat_template import load_tokenizer
from lpfloop.policies.trainers.job import TrainingError
from lpfloop.policies.trainers.rows import IGNORED, refuse_mixing
from lpfloop.policies.trainers.training_fit import TrainingFit
from lpfloop.policies.trainers.trl_trainer import make_trainer

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"))


def trainer_of(world: Path, work: Path, fit: TrainingFit, **settings: object) -> Any:
    job = sft_job(world, work)
    job = replace(job, settings=job.settings.model_copy(update=settings), fit=fit)
    return make_trainer(job, load_tokenizer(job.model))


def learned(batch: dict[str, torch.Tensor]) -> list[int]:
    labels = batch["labels"]
    return labels[labels != IGNORED].tolist()


def test_loss_of_padded_rows(subtests, world: Path, tmp_path: Path):
    for attention, max_length in [("sdpa", 23), ("eager", 128)]:
        with subtests.test(attention=attention, max_length=max_length):
            fit = TrainingFit(attention=attention)
            made = {
                packing: trainer_of(
                    world, tmp_path / str(packing), fit, packing=packing, max_length=max_length
                )
                for packing in (False, True)
            }
            batches = {packing: next(iter(t.get_train_dataloader())) for packing, t in made.items()}
            assert batches[True]["input_ids"].shape[0] == 1
            assert batches[False]["input_ids"].shape[0] == 8
            assert batches[True]["input_ids"].numel() == batches[False]["attention_mask"].sum()
            assert learned(batches[True]) == learned(batches[False])
            losses: dict[bool, float] = {}
            slopes: dict[bool, torch.Tensor] = {}
            for packing, trainer in made.items():
                loss = trainer.compute_loss(trainer.model, dict(batches[packing]))
                loss.backward()
                losses[packing] = float(loss.detach())
                slopes[packing] = trainer.model.lm_head.weight.grad
            assert losses[True] == pytest.approx(losses[False], abs=1e-5)
            assert torch.allclose(slopes[True], slopes[False], atol=1e-6)


def test_mixing_attention(world: Path, tmp_path: Path) -> None:
    trainer = trainer_of(world, tmp_path / "work", TrainingFit(), packing=True)
    refuse_mixing(trainer)
    # A model that treats a packed sequence as one text.
    forward = trainer.model.forward

    def as_one_text(**given: Any) -> Any:
        kept = {name: given[name] for name in ("input_ids", "use_cache")}
        return forward(**kept, attention_mask=torch.ones_like(kept["input_ids"]))

    trainer.model.forward = as_one_text
    with pytest.raises(TrainingError, match=r"attend to one another .* leave it out") as error:
        refuse_mixing(trainer)
    assert error.value.kind == "refused"
