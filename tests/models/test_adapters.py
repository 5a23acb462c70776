"""Trained low-rank adapters are published merged, in the model's type, next to the adapters."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel, get_peft_model
from safetensors.torch import load_file
from trainings import dpo_job, make_model, make_world, sft_job, write_pairs
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
)

from lpfloop.configs.methods import RewardTraining
from lpfloop.configs.training import LoRAConfig
from lpfloop.policies.engines.chat_template import load_tokenizer
from lpfloop.policies.trainers.adapters import peft_config, save_config
from lpfloop.policies.trainers.job import TrainJob, write_job
from lpfloop.policies.trainers.reward_trainer import make_reward_trainer
from lpfloop.policies.trainers.trained_model import (
    Trained,
    assemble_model,
    check_weights,
    save_trained,
)
from lpfloop.policies.trainers.training_fit import ADAPTER, TrainingFit
from lpfloop.policies.trainers.trl_trainer import load_model, make_trainer

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("one_thread")]

LORA = TrainingFit(lora=LoRAConfig(r=4))
IDS = torch.arange(3, 40)[None]
REWARD = RewardTraining(learning_rate=1e-3, batch_size=4, micro_batch_size=2, max_length=128)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"))


def moved(model: Any) -> Any:
    """Give adapters the weights of a possible training: none of them stays 0."""
    torch.manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model.eval()


def saved_adapter(job: TrainJob, model: Any) -> Path:
    """Save adapters as a trainer does."""
    saved = job.folder("saved")
    model.save_pretrained(saved)
    save_config(model, saved)
    return saved


def logits(model: Any, ids: torch.Tensor = IDS) -> torch.Tensor:
    with torch.inference_mode():
        return model(ids, use_cache=False).logits.float()


def test_the_published_model(world: Path, tmp_path: Path) -> None:
    base = world / "model"
    job = replace(sft_job(world, tmp_path / "work"), model=base, fit=LORA)
    job.output.mkdir()
    frozen: Any = load_model(job, base)
    before = logits(frozen)
    adapted = moved(get_peft_model(frozen, peft_config(LORA, "CAUSAL_LM")))
    said = logits(adapted)
    assert (said - before).abs().max() > 0.1
    assemble_model(job, saved_adapter(job, adapted))
    published = AutoModelForCausalLM.from_pretrained(job.folder("model"))
    assert (logits(published) - said).abs().max() < 1e-4
    # The adapters alone, as a user would load them onto their base.
    beside = PeftModel.from_pretrained(load_model(job, base), job.folder("model") / ADAPTER)
    assert (logits(beside) - said).abs().max() < 1e-6
    told = json.loads((job.folder("model") / ADAPTER / "adapter_config.json").read_text())
    assert told["base_model_name_or_path"] == base.name
    check_weights(job, Trained(steps=1, max_steps=1, rows=1, metrics={}, seconds={}))


def test_a_reward_models_head(world: Path, tmp_path: Path) -> None:
    job = replace(dpo_job(world, tmp_path / "work"), method="reward", settings=REWARD, fit=LORA)
    trainer: Any = make_reward_trainer(job, load_tokenizer(job.model))
    learned = {n for n, p in trainer.model.named_parameters() if p.requires_grad}
    assert any("score" in name for name in learned)
    assert all("lora" in name or "score" in name for name in learned)
    adapted = moved(trainer.model)
    said = logits(adapted)
    save_trained(job, trainer, job.folder("saved"))
    assemble_model(job, job.folder("saved"))
    published: Any = AutoModelForSequenceClassification.from_pretrained(job.folder("model"))
    assert (logits(published) - said).abs().max() < 1e-4
    assert published.config.pad_token_id == trainer.model.config.pad_token_id


def test_the_reference(world: Path, tmp_path: Path) -> None:
    make_model(world / "initial", seed=9)
    few = write_pairs(tmp_path / "few.parquet", 12)
    own = replace(dpo_job(world, tmp_path / "own"), fit=LORA, data=(few,))
    other = replace(own, reference=world / "initial", output=tmp_path / "other")
    plain = replace(own, fit=TrainingFit(), output=tmp_path / "plain")
    references: dict[str, torch.Tensor] = {}
    for job in (own, other, plain):
        write_job(job)
        trainer: Any = make_trainer(job, load_tokenizer(job.model))
        told = trainer.train_dataset["ref_chosen_logps"][:]
        references[job.output.name] = torch.tensor(told)
    by_base = references["plain"]
    assert torch.allclose(references["own"], by_base, atol=1e-4)
    assert (references["other"] - by_base).abs().max() > 0.1


def test_published_in_bfloat16(world: Path, tmp_path: Path) -> None:
    fit = replace(LORA, publish="bfloat16")
    base = make_model(tmp_path / "base", dtype="bfloat16")
    job = replace(sft_job(world, tmp_path / "work"), model=base, fit=fit)
    job.output.mkdir()
    adapted = get_peft_model(load_model(job, job.model), peft_config(fit, "CAUSAL_LM"))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.add_(1e-3)
    assemble_model(job, saved_adapter(job, adapted))
    tensors = load_file(job.folder("model") / "model.safetensors")
    assert {t.dtype for t in tensors.values()} == {torch.bfloat16}
    assert json.loads((job.folder("model") / "config.json").read_text())["dtype"] == "bfloat16"
