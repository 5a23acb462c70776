"""What the heads of the paper presets say of memory is what the arithmetic says."""

import re
from pathlib import Path

import pytest
from model_sizes import GLM_4_9B, LLAMA_7B, LLAMA_13B

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import PRESETS, RunConfig
from lpfloop.loop.daemon.hardware import Devices
from lpfloop.loop.daemon.memory_check import memory_of
from lpfloop.policies.memory.shapes import ModelShape, configured
from lpfloop.policies.memory.verdicts import GIB

NAMED = {
    "meta-llama/Llama-2-13b-chat-hf": LLAMA_13B,
    "meta-llama/Llama-2-13b-hf": LLAMA_13B,
    "reward-model": LLAMA_13B,
    "openbmb/UltraLM-13b": LLAMA_13B,
    "huggyllama/llama-7b": LLAMA_7B,
    "zai-org/glm-4-9b-chat-hf": GLM_4_9B,
}
JUDGE = "http://judge/v1"
JUDGES = (
    *(f"annotation.{role}.model={JUDGE}" for role in ("strong", "medium", "weak")),
    "annotation.pool=alpacafarm-hosted",
)
GRADER = (f"grading.model={JUDGE}", "completion.pool=policy")
LINE = re.compile(
    r"^# - (?P<stage>.+): (?P<gib>\d+) GiB(?:; over (?P<over>\d+) GPUs (?P<fsdp>\d+))?"
    r"(?:; with LoRA (?P<lora>\d+))?$"
)
DIVIDED = ("training.sharding=fsdp2", "training.processes=auto")
ADAPTED = ("training.lora.r=16",)


def shapes(folder: Path) -> ModelShape:
    return configured(NAMED[str(folder)])


def needs(config: RunConfig, cards: int, gib: int) -> dict[str, int]:
    """Return what each stage needs of a device, in GiB."""
    have = Devices(cards=(gib * GIB,) * cards, ram=512 * GIB)
    stages = memory_of(config, have=have, shapes=shapes).stages
    assert not any(stage.unknown for stage in stages)
    return {s.stage: round(s.most_bytes / GIB) for s in stages if s.stage != "models asleep"}


def largest(
    preset: str, variants: tuple[str, ...], given: tuple[str, ...], cards: int, gib: int
) -> dict[str, int]:
    """Return what each stage of any of the variants needs at the most."""
    found: dict[str, int] = {}
    for variant in variants:
        config = load_config("paper", variant, ("policy.engine.kind=vllm", *given), {})
        for stage, size in needs(config, cards, gib).items():
            found[stage] = max(size, found.get(stage, 0))
    return found


def head(preset: str) -> list[str]:
    """Return the head's lines on what stages need."""
    lines = (PRESETS / "paper" / f"{preset}.yaml").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if LINE.match(line)]


@pytest.mark.parametrize(
    ("preset", "variants", "cards", "gib", "settings"),
    [
        ("base", ("rlrf", "critique-model"), 16, 40, ("critic.engine.kind=vllm",)),
        ("alpacafarm", ("reward-model", "sft", "dpo", "ppo", "quark"), 8, 80, JUDGES),
        ("ultrafeedback", ("ultrafeedback-ppo", "ultrafeedback-dpo"), 8, 80, GRADER),
        ("chatglm", ("chatglm-ppo", "chatglm-dpo", "chatglm-rs"), 8, 80, JUDGES),
    ],
)
def test_a_presets_head_says_what_its_stages_need(preset, variants, cards, gib, settings) -> None:
    plain, divided, adapted = (
        largest(preset, variants, (*settings, *more), cards, gib) for more in ((), DIVIDED, ADAPTED)
    )

    def line(stage: str, size: int) -> str:
        over = f"; over {cards} GPUs {divided[stage]}" if divided[stage] != size else ""
        lora = f"; with LoRA {adapted[stage]}" if adapted[stage] != size else ""
        return f"# - {stage}: {size} GiB{over}{lora}"

    assert head(preset) == [line(stage, size) for stage, size in plain.items()]


APART = ("training.devices=[0]", "policy.engine.devices=[1]")


@pytest.mark.parametrize(
    ("variant", "cards", "gib", "settings"),
    [
        ("rlrf", 16, 40, (*ADAPTED, "critic.engine.kind=vllm")),
        ("rlrf", 16, 80, (*DIVIDED, "critic.engine.kind=vllm")),
        *((variant, 1, 80, (*ADAPTED, *JUDGES)) for variant in ("sft", "dpo", "ppo", "quark")),
        *((variant, 8, 80, (*DIVIDED, *JUDGES)) for variant in ("sft", "dpo", "reward-model")),
        ("ppo", 8, 80, (*DIVIDED, *JUDGES, "training.ppo.sampler_memory=0.25")),
        ("quark", 8, 80, (*DIVIDED, *JUDGES)),
        ("ultrafeedback-dpo", 1, 80, (*ADAPTED, *GRADER)),
        ("ultrafeedback-dpo", 8, 80, (*DIVIDED, *GRADER)),
        ("ultrafeedback-ppo", 2, 80, (*ADAPTED, *APART, *GRADER)),
        ("chatglm-dpo", 1, 80, (*ADAPTED, *JUDGES)),
        ("chatglm-rs", 8, 80, (*DIVIDED, *JUDGES)),
        ("chatglm-ppo", 2, 80, (*ADAPTED, *APART, *JUDGES)),
    ],
)
def test_every_training_fits_as_a_head_says(variant, cards, gib, settings) -> None:
    config = load_config("paper", variant, ("policy.engine.kind=vllm", *settings), {})
    have = Devices(cards=(gib * GIB,) * cards, ram=512 * GIB)
    stages = memory_of(config, have=have, shapes=shapes).stages
    trained = [s for s in stages if s.stage.startswith(("train by", "measure"))]
    assert trained
    assert [s.as_text() for s in trained if s.verdict != "fits"] == []
    assert not [s for s in stages if s.verdict == "does not fit"]
