"""Real PPO and Quark trainings of adapters: merged when published, killed and resumed."""

from dataclasses import replace
from pathlib import Path

import pytest
from trainings import PPO, ppo_job, sha256, starts, told_steps

from lpfloop.configs.training import LoRAConfig
from lpfloop.policies.trainers.job import TrainJob
from lpfloop.policies.trainers.step_files import read_step
from lpfloop.policies.trainers.train_model import TrainResult, train
from lpfloop.policies.trainers.training_fit import TrainingFit
from lpfloop.stores.records import Rollout
from lpfloop.stores.schemas import from_table

pytestmark = pytest.mark.model

LORA = TrainingFit(lora=LoRAConfig(r=4, alpha=8))
STEPS = 3
SETTINGS = PPO.model_copy(
    update={"max_steps": STEPS, "batch_size": 8, "inner_epochs": 1, "learning_rate": 3e-3}
)
"""One update a step: the first one starts from the policy that sampled."""


def adapted(folder: Path, policy: Path, reward: Path) -> TrainJob:
    """Return a job of PPO with adapters on the tiny policy."""
    job = ppo_job(folder, policy=policy, reward=reward, settings=SETTINGS)
    return replace(job, fit=LORA)


@pytest.fixture(scope="module")
def whole(
    tmp_path_factory: pytest.TempPathFactory, tiny_policy: Path, tiny_reward: Path
) -> TrainResult:
    """An uninterrupted training with adapters."""
    folder = tmp_path_factory.mktemp("adapters")
    return train(adapted(folder, tiny_policy, tiny_reward), log=folder / "train.log")


def test_first_step(whole: TrainResult) -> None:
    rollouts = from_table(Rollout, read_step(whole.output.parent, 1)[Rollout])
    assert [r.kl for r in rollouts] == [0.0] * 8
    assert [r.value for r in rollouts] == [0.0] * 8
    first, *_, last = told_steps(whole.output.parent)
    assert first["kl/update"] == pytest.approx(0.0, abs=1e-6)
    assert first["clipped/policy"] == 0.0
    assert first["loss/policy"] == pytest.approx(0.0, abs=1e-3)
    assert last["kl"] != 0
    # The sampler runs the body merged with the adapters.
    assert max(told["logprob_gap"] for told in told_steps(whole.output.parent)) < 1e-5


def test_published_merged(whole, tiny_policy) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    ids = torch.tensor([[5, 6, 7, 8, 9]])
    with torch.no_grad():
        merged = AutoModelForCausalLM.from_pretrained(whole.output)(ids).logits
        base = AutoModelForCausalLM.from_pretrained(tiny_policy, dtype=torch.float32)
        before = base(ids).logits
        adapter = PeftModel.from_pretrained(base, whole.output / "adapter")(ids).logits
    assert torch.allclose(merged, adapter, atol=1e-4)
    assert not torch.allclose(merged, before, atol=1e-3)


@pytest.mark.crash
def test_resume_after_sigkill(whole, tmp_path, tiny_policy, tiny_reward, monkeypatch) -> None:
    job = adapted(tmp_path, tiny_policy, tiny_reward)
    monkeypatch.setenv("LPFLOOP_FAILPOINT", "trainer.step.written#3:kill")
    resumed = train(job, log=tmp_path / "log", retries=1, checkpoint_minutes=0)
    assert starts(job.output) == [0, 2]
    for name in ("model.safetensors", "adapter/adapter_model.safetensors"):
        assert sha256(resumed.output / name) == sha256(whole.output / name)
    assert resumed.metrics == whole.metrics
    # A checkpoint contains the trained weights, not the body.
    saved = job.folder("checkpoints") / "checkpoint-2" / "policy.safetensors"
    assert saved.stat().st_size < (tiny_policy / "model.safetensors").stat().st_size / 5
