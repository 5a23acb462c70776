"""lpfloop refuses a run that does not fit into a device, before it pays, and suggests remedies."""

from pathlib import Path

import pytest
from models import GLM_4_9B, LLAMA_7B, LLAMA_13B

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import RunConfig
from lpfloop.loop.daemon.machine_check import Devices
from lpfloop.loop.daemon.memory_check import MemoryStages, StageMemory
from lpfloop.loop.recipes.roles import needed_roles
from lpfloop.loop.run.run import Observed
from lpfloop.policies.memory.shapes import ModelShape, UnknownShapeError, shape_of_config
from lpfloop.policies.memory.terms import GIB
from lpfloop.policies.trainers.job import Method

LLAMA_8B = {
    **LLAMA_7B, "intermediate_size": 14_336, "num_key_value_heads": 8, "vocab_size": 128_256,
    "max_position_embeddings": 131_072,
}  # fmt: skip
SIZES = {"7b": LLAMA_7B, "8b": LLAMA_8B, "13b": LLAMA_13B, "glm": GLM_4_9B}
TRAINED: dict[str, Method] = {"rlrf": "dpo", "sft": "sft", "grpo": "grpo"}
VLLM = ("policy.engine.kind=vllm", "critic.engine.kind=vllm")


def shapes(folder: Path) -> ModelShape:
    if str(folder) not in SIZES:
        raise UnknownShapeError(f"not known until {folder} holds the model")
    return shape_of_config(SIZES[str(folder)])


def gpus(count: int, gib: int) -> Devices:
    return Devices(cards=(gib * GIB,) * count, ram=512 * GIB)


def config(*settings: str, recipe: str = "rlrf", model: str = "7b") -> RunConfig:
    named = (
        f"policy.model={model}",
        "policy.engine.max_model_len=2048",
        "critic.model=http://j/v1",
    )
    return load_config("own", recipe, (*named, VLLM[0], *settings), {})


def arithmetic(settings: RunConfig, have: Devices) -> tuple[StageMemory, ...]:
    method: Method = TRAINED[settings.recipe.name]
    seen = Observed(uses={"critic": ("critique",), "reward": ("reward",)}, trainings=(method,))
    roles = needed_roles(settings, seen)
    return MemoryStages(config=settings, roles=roles, have=have, shapes=shapes).advised()


def stage(found: tuple[StageMemory, ...], name: str) -> StageMemory:
    exact = (s for s in found if s.stage == name)
    return next(exact, None) or next(s for s in found if s.stage.startswith(name))


def test_advice_makes_training_of_7b_fit() -> None:
    small = arithmetic(config(), gpus(1, 24))
    assert stage(small, "policy answers").verdict != "does not fit"
    alone = stage(small, "train by dpo")
    assert alone.verdict == "does not fit"
    named = ("training.dpo.micro_batch_size=1", "training.lora.r=16")
    assert all(setting in alone.advice for setting in named)
    assert "fsdp2" not in alone.advice
    relieved = arithmetic(config(*named), gpus(1, 24))
    assert stage(relieved, "train by dpo").verdict == "fits"
    large = stage(arithmetic(config("training.processes=8"), gpus(8, 80)), "train by dpo")
    assert large.verdict == "does not fit"
    divided = ("training.sharding=fsdp2", "training.processes=auto")
    assert all(setting in large.advice for setting in divided)
    assert stage(arithmetic(config(*divided), gpus(8, 80)), "train by dpo").verdict == "fits"


def test_critic_and_trainer_share_gpu() -> None:
    small = ("training.lora.r=16", "training.grpo.micro_batch_size=1")
    near = (*small, "critic.model=7b", VLLM[1])

    def training(*settings: str, count: int = 1) -> StageMemory:
        found = arithmetic(config(*settings, recipe="grpo"), gpus(count, 80))
        return stage(found, "train by grpo")

    assert training(*small).verdict == "fits"
    alone = training(*near)
    assert alone.verdict == "does not fit"
    assert "critic" in {term.name for term in alone.terms}
    less = "critic.engine.memory_utilization=0.4"
    assert less in alone.advice
    assert training(*near, less).verdict != "does not fit"
    apart = ("training.devices=[0]", "policy.engine.devices=[0]", "critic.engine.devices=[1]")
    assert "other GPUs for training.devices" in training(*near, count=2).advice
    assert training(*near, *apart, count=2).verdict == "fits"


def test_context_that_would_fit() -> None:
    long = config("policy.engine.max_model_len=131072", model="7b")
    found = stage(arithmetic(long, gpus(1, 40)), "policy answers")
    assert found.verdict == "does not fit"
    assert f"policy.engine.max_model_len={found.fitting}" in found.advice
    shorter = config(f"policy.engine.max_model_len={found.fitting}", model="7b")
    assert stage(arithmetic(shorter, gpus(1, 40)), "policy answers").verdict != "does not fit"


def test_room_in_cache() -> None:
    found = stage(arithmetic(config(model="13b"), gpus(1, 80)), "policy answers")
    # 72 GiB without 24.2 of weights, 4.1 of activations, CUDA and graphs; 1.56 GiB a request.
    assert found.note == "28 requests of 2048 tokens at once"


def test_recomputation_is_decided_by_memory() -> None:
    small = ("training.lora.r=16", "training.dpo.micro_batch_size=1")
    for gib, recomputed in ((24, True), (80, False)):
        found = stage(arithmetic(config(*small), gpus(1, gib)), "train by dpo")
        assert ("recomputed" in found.note, found.verdict) == (recomputed, "fits")


def test_margin() -> None:
    # 8B weights with 135 of 140 GiB computed ran out of memory on an H200.
    whole = config("training.sft.micro_batch_size=2", recipe="sft", model="8b")
    found = stage(arithmetic(whole, gpus(1, 140)), "train by sft")
    assert found.verdict == "may not fit"
    assert found.most_bytes / GIB == pytest.approx(136, abs=2)


def test_models_elsewhere_take_no_memory_here() -> None:
    found = arithmetic(config("policy.engine.place=ray"), gpus(1, 80))
    assert [s.stage for s in found] == ["train by dpo", "measure the canary"]
