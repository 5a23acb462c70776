"""Critique distillation: its loss by hand in float64, and what a kill changes.

By hand is: from a model's logits, row by row, without padding.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from trainings import DISTIL, distil_job, killed_at, make_world, starts
from transformers import AutoTokenizer

from lpfloop.policies.trainers.checkpoints import describe_files
from lpfloop.policies.trainers.distillation_trainer import (
    collated,
    make_distillation_trainer,
)
from lpfloop.policies.trainers.job import TrainJob, write_job
from lpfloop.policies.trainers.train_model import train

pytestmark = [pytest.mark.model, pytest.mark.slow]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("distillation"))


def tokenizer_of(job: TrainJob) -> Any:
    return AutoTokenizer.from_pretrained(job.model)


def trainer_of(job: TrainJob) -> Any:
    write_job(job)
    return make_distillation_trainer(job, tokenizer_of(job))


def logits(model: Any, prompt: list[int], answer: list[int]) -> torch.Tensor:
    """The logits of an answer's tokens after a prompt, one row without padding."""
    ids = torch.tensor([prompt + answer])
    return model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1].double()


def parts(row: dict[str, Any]) -> tuple[list[int], list[int], list[int]]:
    end = len(row["input_ids"]) - row["answer_tokens"]
    return row["prompt_ids"], row["input_ids"][:end], row["input_ids"][end:]


def test_loss_by_hand(subtests, world: Path, tmp_path: Path):
    for divergence in ["forward_kl", "reverse_kl", "jsd"]:
        with subtests.test(divergence=divergence):
            settings = DISTIL.model_copy(update={"divergence": divergence, "temperature": 2.0})
            trainer = trainer_of(replace(distil_job(world, tmp_path / "work"), settings=settings))
            torch.manual_seed(3)
            student = trainer.model.double()
            with torch.no_grad():
                for weight in student.parameters():
                    weight.add_(torch.randn_like(weight) * 0.05)
            trainer.teacher = trainer.teacher.double()

            rows = [trainer.train_dataset[n] for n in range(5)]
            terms: list[torch.Tensor] = []
            with torch.no_grad():
                for prompt, shown, answer in map(parts, rows):
                    p = (logits(trainer.teacher, shown, answer) / 2).softmax(-1)
                    q = (logits(student, prompt, answer) / 2).softmax(-1)
                    m = (p + q) / 2
                    terms += {
                        "forward_kl": (p * (p / q).log()).sum(-1),
                        "reverse_kl": (q * (q / p).log()).sum(-1),
                        "jsd": ((p * (p / m).log()).sum(-1) + (q * (q / m).log()).sum(-1)) / 2,
                    }[divergence]
            expected = torch.stack(terms).mean()

            passes = [collated(rows[:2]), collated(rows[2:])]
            count = trainer._get_num_items_in_batch(passes, torch.device("cpu"))
            assert int(count) == len(terms)
            shares = [
                trainer.compute_loss(student, batch, num_items_in_batch=count) for batch in passes
            ]
            assert sum(shares).item() == pytest.approx(expected.item(), abs=1e-9)
            assert expected.item() > 1e-4
            sum(shares).backward()
            assert all(
                w.grad is not None and bool(w.grad.isfinite().all()) for w in student.parameters()
            )
            assert all(weight.grad is None for weight in trainer.teacher.parameters())


def test_resume_after_sigkill(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "train.log"
    job = distil_job(world, tmp_path / "work")
    killed_at(monkeypatch, job, log, "trainer.checkpoint.sealed#2")
    resumed = train(job, log=log)
    assert starts(job.output) == [0, 2]
    whole = train(replace(job, output=tmp_path / "other"), log=log)
    assert describe_files(resumed.output) == describe_files(whole.output)
    assert (resumed.metrics, resumed.history) == (whole.metrics, whole.history)
