"""The sampler: new weights act at once, bit-exact to a new engine; it detects old ones.

vLLM's reload leaves an output layer that is tied to the embedding unchanged; these tests would
detect it.
"""

import math
from pathlib import Path

import pytest

from lpfloop.configs.engines import EngineConfig, SamplingConfig
from lpfloop.policies.engines.canary import StaleWeightsError
from lpfloop.policies.online.networks import FLOAT32_AGREEMENT
from lpfloop.policies.online.sampler import RolloutSampler, refuse_stale
from lpfloop.policies.trainers.step_files import PromptToSample, RolloutDraw
from lpfloop.stores.records import Message

pytestmark = pytest.mark.model

ROLLOUTS = [
    RolloutDraw(
        candidate_id=f"cand-{i}",
        seed=100 + i,
        prompt=PromptToSample(
            prompt_id=f"p{i}", messages=(Message(role="user", content=f"What is {i} plus 7?"),)
        ),
    )
    for i in range(12)
]
SAMPLING = SamplingConfig(temperature=1.0, top_p=1.0, max_tokens=16)


def moved(policy: Path, folder: Path) -> None:
    """Put other weights than the policy's into a folder."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(0.003 * torch.randn(weights.shape, generator=generator))
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(policy).save_pretrained(folder)


def opened(kind: str, folder: Path, log: Path) -> RolloutSampler:
    config = EngineConfig(kind=kind, dtype="float32", max_model_len=256, cpu_threads=1)
    return RolloutSampler(folder, config, log=log, alive=lambda: None)


@pytest.mark.parametrize("kind", ["transformers", pytest.param("vllm", marks=pytest.mark.slow)])
def test_a_reloaded_engine_draws_as_a_new_one(tmp_path, tiny_policy, kind) -> None:
    import shutil

    weights = tmp_path / "rollout"
    shutil.copytree(tiny_policy, weights)
    sampler = opened(kind, weights, tmp_path / "log")
    before = sampler.draw(ROLLOUTS, SAMPLING)
    moved(tiny_policy, weights)
    sampler.reload()
    reloaded = sampler.draw(ROLLOUTS, SAMPLING)
    sampler.close()
    fresh = opened(kind, weights, tmp_path / "log")
    assert fresh.draw(ROLLOUTS, SAMPLING) == reloaded != before
    fresh.close()
    for completion in reloaded:
        assert completion.token_ids is not None
        assert len(completion.token_ids) == completion.completion_tokens


def test_stale_log_probabilities_are_refused() -> None:
    allowed = FLOAT32_AGREEMENT
    assert refuse_stale([-3.0, -5.0], [-3.0, -5.0], [4, 6], [0, 0], allowed=allowed) == 0
    for off in (-5.01, math.nan):
        with pytest.raises(StaleWeightsError, match="weights"):
            refuse_stale([-3.0, -5.0], [-3.0, off], [4, 6], [0, 0], allowed=allowed)


def test_a_stale_replica_is_refused() -> None:
    engine, tokens = [-5.0] * 8, [5] * 8
    trainer = [-5.0] * 7 + [-6.0]
    assert refuse_stale(engine, trainer, tokens, [0] * 8, allowed=0.05) == 1 / 40
    with pytest.raises(StaleWeightsError, match=r"0\.2 nats"):
        refuse_stale(engine, trainer, tokens, list(range(8)), allowed=0.05)
