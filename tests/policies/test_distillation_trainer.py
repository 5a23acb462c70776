"""Critique distillation: its loss by hand in float64, what it teaches, what a kill changes.

By hand is: from a model's logits, row by row, without padding.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from trainings import (
    DISTIL,
    distil_job,
    killed_at,
    make_model,
    make_world,
    starts,
    turn,
    write_distillations,
)
from transformers import AutoTokenizer, LlamaForCausalLM

from lpfloop.configs.training import LoRAConfig
from lpfloop.policies.trainers.distillation_trainer import (
    AGREEMENT,
    ENTROPY,
    collated,
    encoded_rows,
    make_distillation_trainer,
)
from lpfloop.policies.trainers.next_token import METRIC
from lpfloop.policies.trainers.train_model import TrainingError, train
from lpfloop.policies.trainers.trainer_checkpoints import describe_files
from lpfloop.policies.trainers.trainer_job import (
    SupervisedSet,
    TrainJob,
    job_json,
    read_job,
    write_job,
)
from lpfloop.policies.trainers.training_fit import TrainingFit
from lpfloop.policies.trainers.trl_trainer import load_data, load_model

pytestmark = pytest.mark.model


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


@pytest.mark.parametrize("divergence", ["forward_kl", "reverse_kl", "jsd"])
def test_the_loss_is_the_mean_over_the_tokens_of_all_passes_of_a_step(
    world: Path, tmp_path: Path, divergence: Any
) -> None:
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
    shares = [trainer.compute_loss(student, batch, num_items_in_batch=count) for batch in passes]
    assert sum(shares).item() == pytest.approx(expected.item(), abs=1e-9)
    assert expected.item() > 1e-4
    sum(shares).backward()
    assert all(w.grad is not None and bool(w.grad.isfinite().all()) for w in student.parameters())
    assert all(weight.grad is None for weight in trainer.teacher.parameters())


def opinionated(folder: Path) -> Path:
    """A random model whose next token depends on what was said before: its weights are large."""
    make_model(folder)
    model = LlamaForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.mul_(10)
    model.save_pretrained(folder)
    return folder


def test_the_policy_moves_towards_itself_with_the_critique_also_on_held_out_rows(
    tmp_path: Path,
) -> None:
    make_world(tmp_path)
    settings = DISTIL.model_copy(update={"epochs": 4.0, "learning_rate": 2e-3})
    job = replace(
        distil_job(tmp_path, tmp_path / "work"),
        model=opinionated(tmp_path / "opinionated"),
        data=(write_distillations(tmp_path / "rows.parquet", 72),),
        settings=settings,
    )
    trainer = trainer_of(job)
    rows = [trainer.train_dataset[n] for n in range(72)]
    trainer.train_dataset = trainer.train_dataset.select(range(56))

    def mean_kl() -> float:
        trainer.model.eval()
        with torch.no_grad():
            found = [
                (p.exp() * (p - logits(trainer.model, prompt, answer).log_softmax(-1))).sum(-1)
                for prompt, shown, answer in map(parts, rows[56:])
                for p in [logits(trainer.teacher, shown, answer).log_softmax(-1)]
            ]
        return torch.cat(found).mean().item()

    before = mean_kl()
    trainer.train()
    steps = [step for step in trainer.state.log_history if "loss" in step]
    assert steps[-1]["loss"] < 0.5 * steps[0]["loss"]
    assert steps[-1][AGREEMENT] > steps[0][AGREEMENT]
    assert steps[0][ENTROPY] > 0
    assert before > 0.01
    assert mean_kl() < 0.6 * before


@pytest.mark.parametrize("fit", [TrainingFit(), TrainingFit(lora=LoRAConfig(r=4, dropout=0.1))])
def test_a_killed_distillation_ends_bit_equal(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fit: TrainingFit
) -> None:
    log = tmp_path / "train.log"
    job = replace(distil_job(world, tmp_path / "work"), fit=fit)
    killed_at(monkeypatch, job, log, "trainer.checkpoint.sealed#2")
    resumed = train(job, log=log)
    assert starts(job.output) == [0, 2]
    whole = train(replace(job, output=tmp_path / "other"), log=log)
    assert describe_files(resumed.output) == describe_files(whole.output)
    assert (resumed.metrics, resumed.history) == (whole.metrics, whole.history)


def test_with_adapters_the_teacher_is_the_body_below_them(world: Path, tmp_path: Path) -> None:
    fit = TrainingFit(lora=LoRAConfig(r=4, dropout=0.5))
    trainer = trainer_of(replace(distil_job(world, tmp_path / "work"), fit=fit))
    assert trainer.teacher is None
    with torch.no_grad():
        for name, weight in trainer.model.named_parameters():
            if "lora_B" in name:
                weight.fill_(0.3)
    own = load_model(distil_job(world, tmp_path / "work"), world / "model")
    trainer.model.train()
    with torch.no_grad(), trainer._taught(trainer.model) as teacher:
        ids = torch.tensor([[4, 5, 6, 7]])
        assert torch.equal(teacher(input_ids=ids).logits, own(input_ids=ids).logits)


def test_peoples_answers_can_be_learned_beside(world: Path, tmp_path: Path) -> None:
    told = SupervisedSet(data=(world / "demonstrations.parquet",), weight=0.5, batch_size=4)
    trainer = trainer_of(replace(distil_job(world, tmp_path / "work"), supervised=told))
    trainer.train()
    steps = [step for step in trainer.state.log_history if "loss" in step]
    assert steps[0]["loss"] > 0.4 * steps[0][METRIC] > 1
    assert steps[-1][METRIC] < steps[0][METRIC]


def test_an_answer_that_is_too_long_loses_its_end_and_a_prompt_its_row(
    world: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = pq.read_table(world / "distillations.parquet").to_pylist()[:2]
    table[1]["teacher_prompt"] = turn("user", "x" * 200)
    table[0]["completion"] = turn("assistant", "y" * 200)
    path = tmp_path / "rows.parquet"
    pq.write_table(pq.read_table(world / "distillations.parquet").from_pylist(table), path)
    job = replace(distil_job(world, tmp_path / "work"), data=(path,))
    write_job(job)
    (row,) = encoded_rows(job, load_data(job, None))
    assert len(row["input_ids"]) == DISTIL.max_length
    assert 0 < row["answer_tokens"] < 200
    assert "1 of 2 distillations are left out" in caplog.text

    short = job.settings.model_copy(update={"max_length": 16})
    with pytest.raises(TrainingError, match=r"raise training\.distil\.max_length"):
        encoded_rows(replace(job, settings=short), load_data(job, None))


def test_a_job_of_distillation_is_read_as_it_was_written(world: Path, tmp_path: Path) -> None:
    job = distil_job(world, tmp_path / "work")
    write_job(job)
    assert read_job(job.folder("job.json")) == job
    other = DISTIL.model_copy(update={"divergence": "jsd"})
    assert job_json(job) != job_json(replace(job, settings=other))
