"""KTO with lpfloop's settings of TRL: its loss by hand, learning, resumes."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from trainings import KTO, kto_job, make_model, make_world
from transformers import AutoTokenizer

from lpfloop.configs.methods import KTOTraining
from lpfloop.policies.engines.canary import read_canary
from lpfloop.policies.trainers.job import TrainingError, TrainJob, write_job
from lpfloop.policies.trainers.preference_trainers import (
    WEIGHTS,
    desirable_weight,
    mismatched_order,
)
from lpfloop.policies.trainers.train_model import train
from lpfloop.policies.trainers.trl_trainer import load_model, make_trainer

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("one_thread")]


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


@pytest.mark.parametrize("loss", ["kto", "apo_zero_unpaired"])
def test_the_loss_is_eq_7(world: Path, tmp_path: Path, loss: str):
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


def test_successes_rise_and_failures_fall(tmp_path: Path, world: Path):
    result = train(kto_job(world, tmp_path / "work"), log=tmp_path / "train.log")
    first, last = result.history[0], result.history[-1]
    assert first["rewards/chosen"] == pytest.approx(0, abs=1e-3)
    assert last["rewards/chosen"] > 0.1
    assert last["rewards/rejected"] < -0.1
    assert last["loss"] < first["loss"]
    assert {step[name] for step in result.history for name in WEIGHTS[:1]} == {2.0}
    assert read_canary(result.output.parent)


def test_the_weight_of_successes():
    """By default it balances them against the failures."""
    for configured, expected in (("auto", 2.0), (3.0, 3.0)):
        settings = KTOTraining.model_validate(
            {"desirable_weight": configured, "undesirable_weight": 0.5}
        )
        assert desirable_weight(settings, [True] * 2 + [False] * 8) == expected
    for label in (True, False):
        with pytest.raises(TrainingError, match="successes and failures"):
            desirable_weight(KTO, [label] * 4)


def test_batch_has_distinct_prompts():
    prompts = [f"prompt-{n // 5}" for n in range(100)]
    order = mismatched_order(prompts, 4, seed=1)
    assert sorted(order) == list(range(100))
    assert order == mismatched_order(prompts, 4, seed=1) != mismatched_order(prompts, 4, seed=2)
    passes = [[prompts[row] for row in order[start : start + 4]] for start in range(0, 100, 4)]
    assert all(len({*asked}) == 4 for asked in passes[:-2])
