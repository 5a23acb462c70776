"""KTO as we call TRL's: its loss by hand, its weights, the order of its rows, its resumes."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from trainings import KTO, killed_at, kto_job, make_model, make_world, starts, write_unpaired
from transformers import AutoTokenizer

from lpfloop.configs.methods import KTOTraining
from lpfloop.configs.training import LoRAConfig
from lpfloop.policies.engines.canary import read_canary
from lpfloop.policies.trainers.kto_trainer import (
    WEIGHTS,
    desirable_weight,
    mismatched_order,
)
from lpfloop.policies.trainers.reference_logprobs import FOLDER
from lpfloop.policies.trainers.train_model import TrainingError, train
from lpfloop.policies.trainers.trainer_checkpoints import describe_files
from lpfloop.policies.trainers.trainer_job import TrainJob, write_job
from lpfloop.policies.trainers.training_fit import TrainingFit
from lpfloop.policies.trainers.trl_trainer import load_model, make_trainer


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_world(tmp_path_factory.mktemp("kto"))
    make_model(folder / "reference", seed=1)
    return folder


def trainer_of(job: TrainJob) -> Any:
    write_job(job)
    return make_trainer(job, AutoTokenizer.from_pretrained(job.model))


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


@torch.no_grad()
def logprobs(model: Any, batch: dict[str, torch.Tensor], prefix: str = "") -> list[float]:
    """The log-probability of each answer of a batch, one by one."""
    found: list[float] = []
    for ids, mask, learned in zip(
        *(batch[f"{prefix}{name}"] for name in ("input_ids", "attention_mask", "completion_mask")),
        strict=True,
    ):
        whole = ids[mask.bool()]
        logits = model(input_ids=whole[None]).logits[0].double().log_softmax(-1)
        told = logits[:-1].gather(1, whole[1:, None])[:, 0]
        found.append(float((told * learned[mask.bool()][1:]).sum()))
    return found


@pytest.mark.model
@pytest.mark.parametrize("loss", ["kto", "apo_zero_unpaired"])
def test_the_loss_is_eq_7_against_the_kl_of_its_pass(world: Path, tmp_path: Path, loss: str):
    job = replace(
        kto_job(world, tmp_path / "work"),
        reference=world / "reference",
        settings=KTO.model_copy(update={"loss": loss, "desirable_weight": 1.3}),
    )
    trainer = trainer_of(job)
    batch = next(iter(trainer.get_train_dataloader()))
    reference = load_model(job, world / "reference")
    policy, pi_ref = logprobs(trainer.model, batch), logprobs(reference, batch)
    assert batch["ref_logps"].tolist() == pytest.approx(pi_ref, abs=1e-4)
    kl = 0.0
    if loss == "kto":
        told = logprobs(trainer.model, batch, "KL_"), logprobs(reference, batch, "KL_")
        assert batch["ref_KL_logps"].tolist() == pytest.approx(told[1], abs=1e-4)
        kl = max(0.0, sum(a - b for a, b in zip(*told, strict=True)) / len(policy))
    values: list[float] = []
    for label, mine, other in zip(batch["label"].tolist(), policy, pi_ref, strict=True):
        ahead = KTO.beta * (mine - other - kl)
        values.append(1.3 * (1 - sigmoid(ahead)) if label else 1 - sigmoid(-ahead))
    by_hand = sum(values) / len(values)
    found = trainer.compute_loss(trainer.model, dict(batch)).detach()
    assert float(found) == pytest.approx(by_hand, rel=1e-4)


@pytest.mark.model
def test_successes_rise_and_failures_fall_against_the_reference(tmp_path: Path, world: Path):
    result = train(kto_job(world, tmp_path / "work"), log=tmp_path / "train.log")
    first, last = result.history[0], result.history[-1]
    assert first["rewards/chosen"] == pytest.approx(0, abs=1e-3)
    assert last["rewards/chosen"] > 0.1
    assert last["rewards/rejected"] < -0.1
    assert last["loss"] < first["loss"]
    assert {step[name] for step in result.history for name in WEIGHTS[:1]} == {2.0}
    assert read_canary(result.output.parent)
    assert list((tmp_path / FOLDER).glob("*.json"))  # the reference's log-probabilities are kept


@pytest.mark.model
@pytest.mark.parametrize(
    "fit",
    [
        TrainingFit(),
        pytest.param(TrainingFit(lora=LoRAConfig(r=4, dropout=0.1)), marks=pytest.mark.slow),
    ],
    ids=["whole", "lora"],
)
def test_a_killed_training_ends_bit_equal(
    tmp_path: Path, world: Path, monkeypatch: pytest.MonkeyPatch, fit: TrainingFit
):
    log = tmp_path / "train.log"

    def job(name: str) -> TrainJob:
        made = kto_job(world, tmp_path / name)
        return replace(made, settings=KTO.model_copy(update={"epochs": 1.0}), fit=fit)

    for place in ("file.rename.before#1", "trainer.checkpoint.sealed#3"):
        killed_at(monkeypatch, job("work"), log, place)
    resumed = train(job("work"), log=log)
    assert starts(tmp_path / "work") == [0, 3]
    whole = train(job("other"), log=log)
    assert describe_files(resumed.output) == describe_files(whole.output)
    assert (resumed.metrics, resumed.history) == (whole.metrics, whole.history)


@pytest.mark.slow
@pytest.mark.model
def test_the_kl_is_that_of_the_passes_of_all_processes(tmp_path: Path, world: Path):
    log = tmp_path / "train.log"
    one, two = (
        train(replace(kto_job(world, tmp_path / f"{count}"), processes=count), log=log)
        for count in (1, 2)
    )
    assert one.history[0]["loss"] == pytest.approx(two.history[0]["loss"], rel=1e-4)
    assert two.history[-1]["rewards/chosen"] > 0.1
    assert two.history[-1]["rewards/rejected"] < -0.1


@pytest.mark.parametrize("configured", ["auto", 3.0])
def test_the_weight_of_successes_balances_them_unless_it_is_set(configured: str | float):
    settings = KTOTraining.model_validate(
        {"desirable_weight": configured, "undesirable_weight": 0.5}
    )
    found = desirable_weight(settings, [True] * 2 + [False] * 8)
    assert found == (2.0 if configured == "auto" else 3.0)


@pytest.mark.parametrize("labels", [[True] * 4, [False] * 4])
def test_one_kind_of_answers_is_refused(labels: Sequence[bool]):
    with pytest.raises(TrainingError, match="successes and failures, and there are"):
        desirable_weight(KTO, labels)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"micro_batch_size": 1}, "micro_batch_size is 1"),
        ({"desirable_weight": 0}, "must be a number above 0, or auto"),
        ({"desirable_weight": "balanced"}, "must be a number above 0, or auto"),
        ({"undesirable_weight": 0}, "greater than 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, object], said: str):
    with pytest.raises(ValidationError, match=said):
        KTOTraining.model_validate(settings)
    without_kl = {"micro_batch_size": 1, "loss": "apo_zero_unpaired"}
    assert KTOTraining.model_validate(without_kl).micro_batch_size == 1


def test_a_pass_has_no_prompt_twice_where_there_are_others():
    prompts = [f"prompt-{n // 5}" for n in range(100)]
    order = mismatched_order(prompts, 4, seed=1)
    assert sorted(order) == list(range(100))
    assert order == mismatched_order(prompts, 4, seed=1) != mismatched_order(prompts, 4, seed=2)
    passes = [[prompts[row] for row in order[start : start + 4]] for start in range(0, 100, 4)]
    assert all(len({*asked}) == 4 for asked in passes[:-2])


@pytest.mark.parametrize(("rows", "kept"), [(9, 8), (10, 10), (1, 0)])
def test_a_row_that_is_alone_in_its_pass_is_left_out(rows: int, kept: int):
    assert len(mismatched_order(["one prompt"] * rows, 4, seed=1)) == kept


@pytest.mark.model
def test_a_kto_job_reads_only_what_it_trains_on(tmp_path: Path, world: Path):
    data = write_unpaired(tmp_path / "unpaired.parquet", 4, failures=1)
    job = replace(kto_job(world, tmp_path / "work"), data=(data,))
    columns = trainer_of(job).train_dataset.column_names
    assert {"prompt_ids", "completion_ids", "label", "ref_logps", "ref_KL_logps"} <= {*columns}
    assert "prompt_id" not in columns
