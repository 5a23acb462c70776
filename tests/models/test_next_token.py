"""The next-token loss: Eq. 6 by hand, in float64 to 1e-6, added once to each optimizer step.

By hand means from a model's logits, example by example, without padding. `test_losses` checks
TRL's losses.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from trainings import dpo_job, make_model, make_world, sft_job
from transformers import AutoTokenizer

from lpfloop.policies.engines.chat import ChatTokenizer
from lpfloop.policies.trainers.job import SupervisedSet, TrainJob, read_job, write_job
from lpfloop.policies.trainers.next_token import METRIC, NextTokenLoss
from lpfloop.policies.trainers.sequences import Spoken
from lpfloop.policies.trainers.trl_trainer import make_trainer

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("one_thread")]

WEIGHT = 0.3


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_world(tmp_path_factory.mktemp("next-token"))
    make_model(folder / "reference", seed=1)
    return folder


def supervised(world: Path, *, batch_size: int = 5) -> SupervisedSet:
    return SupervisedSet(
        data=(world / "demonstrations.parquet",), weight=WEIGHT, batch_size=batch_size
    )


def with_set(job: TrainJob, world: Path) -> TrainJob:
    return replace(job, supervised=supervised(world))


def chat_of(job: TrainJob) -> ChatTokenizer:
    return ChatTokenizer(AutoTokenizer.from_pretrained(job.model), job.model)


def mean_nll(model: Any, batch: Sequence[Spoken]) -> torch.Tensor:
    """-sum log pi(y | x) / |y| over a batch, example by example, without padding."""
    total = torch.zeros((), dtype=torch.float64)
    for spoken in batch:
        ids = torch.tensor(spoken.prompt + spoken.answer)
        told = model(input_ids=ids[None]).logits[0].log_softmax(-1)[:-1]
        total = total - told.gather(1, ids[1:, None])[-len(spoken.answer) :].sum()
    return total / sum(len(spoken.answer) for spoken in batch)


def gradients(model: Any) -> dict[str, torch.Tensor]:
    """Return a model's gradients, and reset them."""
    found = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    model.zero_grad()
    return found


def assert_equal(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    for name, values in expected.items():
        assert values.abs().max() > 0
        torch.testing.assert_close(found[name], values, rtol=0, atol=1e-6, msg=name)


@pytest.mark.parametrize("method", ["dpo", "sft"])
def test_an_optimizer_step_adds_it_once(world: Path, tmp_path: Path, method: str):
    make = dpo_job if method == "dpo" else sft_job
    job = with_set(make(world, tmp_path / "work"), world)
    small = job.settings.model_copy(update={"batch_size": 4, "micro_batch_size": 2})
    job = replace(job, settings=small, reference=world / "reference" if method == "dpo" else None)
    write_job(job)
    trainer: Any = make_trainer(job, AutoTokenizer.from_pretrained(job.model))
    model = trainer.model.double()
    loader = iter(trainer.get_train_dataloader())
    batches = [next(loader) for _ in range(2)]
    trainer.current_gradient_accumulation_steps = len(batches)
    labels = [batch["labels"] for batch in batches if "labels" in batch]
    items = sum((x != -100).sum() for x in labels) if labels else None

    def own(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        loss = trainer.compute_loss(model, dict(batch), num_items_in_batch=items)
        return loss / len(batches) if items is None else loss

    told = sum(float(trainer.training_step(model, dict(batch), items)) for batch in batches)
    found = gradients(model)
    (nll,) = trainer._metrics["train"][METRIC]
    by_hand = mean_nll(model, trainer.next_token.batch(1))
    whole = sum(own(batch) for batch in batches) + WEIGHT * by_hand
    whole.backward()
    assert nll == pytest.approx(by_hand.item(), abs=1e-6)
    assert told == pytest.approx(whole.item(), abs=1e-6)
    assert_equal(found, gradients(model))


def test_batches_visit_the_whole_set(world: Path, tmp_path: Path):
    job = with_set(sft_job(world, tmp_path / "work"), world)
    write_job(job)
    assert read_job(job.folder("job.json")) == job
    loss = NextTokenLoss(job, supervised(world, batch_size=16), chat_of(job), Accelerator(cpu=True))
    epoch = Counter(spoken for update in (1, 2, 3) for spoken in loss.batch(update))
    assert len(epoch) == 48
    assert set(epoch.values()) == {1}
    assert loss.batch(4) != loss.batch(1)
    assert loss.batch(1) == loss.batch(1)
