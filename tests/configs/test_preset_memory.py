"""What the heads of the paper presets say of memory is what the arithmetic says."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from model_sizes import (
    GLM_4_9B,
    LLAMA_1B,
    LLAMA_3B,
    LLAMA_7B,
    LLAMA_8B,
    LLAMA_13B,
    LLAMA_70B,
    QWEN_0_5B,
)

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import PRESETS, RunConfig
from lpfloop.loop.daemon.hardware import Devices
from lpfloop.loop.daemon.memory_check import memory_of
from lpfloop.policies.memory.shapes import ModelShape, configured
from lpfloop.policies.memory.verdicts import GIB

NAMED = {
    "meta-llama/Llama-2-13b-chat-hf": LLAMA_13B,
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
    r"^# - (?P<stage>.+): (?P<gib>\d+) GiB(; over (?P<over>\d+) GPUs (?P<fsdp>\d+))?$"
)
FSDP = "distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\n"


def shapes(folder: Path) -> ModelShape:
    return configured(NAMED[str(folder)])


def needs(config: RunConfig, cards: int, gib: int) -> Iterator[tuple[str, float]]:
    have = Devices(cards=(gib * GIB,) * cards, ram=512 * GIB)
    for stage in memory_of(config, have=have, shapes=shapes).stages:
        assert not stage.unknown
        yield stage.stage, stage.most_bytes / GIB


@pytest.mark.parametrize(
    ("preset", "variants", "cards", "gib", "settings"),
    [
        ("base", ("rlrf", "critique-model"), 16, 40, ("critic.engine.kind=vllm",)),
        ("alpacafarm", ("reward-model", "sft", "dpo", "ppo", "quark"), 8, 80, JUDGES),
        ("ultrafeedback", ("ultrafeedback-ppo", "ultrafeedback-dpo"), 8, 80, GRADER),
        ("chatglm", ("chatglm-ppo", "chatglm-dpo", "chatglm-rs"), 8, 80, JUDGES),
    ],
)
def test_a_presets_head_says_what_its_stages_need(
    tmp_path, preset, variants, cards, gib, settings
) -> None:
    sharded = tmp_path / "fsdp.yaml"
    sharded.write_text(FSDP, encoding="utf-8")
    found: dict[str, float] = {}
    divided: dict[str, float] = {}
    for variant in variants:
        given = ("policy.engine.kind=vllm", *settings)
        plain = load_config("paper", variant, given, {})
        fsdp = load_config("paper", variant, (*given, f"training.accelerate_config={sharded}"), {})
        for into, config in ((found, plain), (divided, fsdp)):
            for stage, size in needs(config, cards, gib):
                into[stage] = max(size, into.get(stage, 0))
    head = (PRESETS / "paper" / f"{preset}.yaml").read_text(encoding="utf-8").splitlines()
    told = [match for match in map(LINE.match, head) if match]
    assert {line["stage"]: int(line["gib"]) for line in told} == {
        stage: round(size) for stage, size in found.items()
    }
    for line in told:
        changed = round(divided[line["stage"]]) != round(found[line["stage"]])
        assert bool(line["fsdp"]) == changed
        if changed:
            assert (int(line["over"]), int(line["fsdp"])) == (
                cards,
                round(divided[line["stage"]]),
            )


MODELS = {
    "Qwen2.5-0.5B": QWEN_0_5B,
    "Llama-3.2-1B": LLAMA_1B,
    "Llama-3.2-3B": LLAMA_3B,
    "Llama-3.1-8B": LLAMA_8B,
    "Llama-2-13b": LLAMA_13B,
    "Llama-3.1-70B": LLAMA_70B,
}
STAGES = {
    "sample": ("rlrf", "policy answers (vllm)"),
    "score": ("rlrf", "reward scores"),
    "DPO": ("rlrf", "train by dpo"),
    "canary": ("rlrf", "measure the canary"),
    "PPO": ("ppo", "train by ppo"),
    "Quark": ("quark", "train by quark"),
}


def table_row(name: str, tmp_path: Path) -> list[str]:
    """Return the documentation's row of a model: what each stage needs, in GiB."""
    sharded = tmp_path / "fsdp.yaml"
    sharded.write_text(FSDP, encoding="utf-8")

    def at(_: Path) -> ModelShape:
        return configured(MODELS[name])

    def size(variant: str, stage: str, *settings: str) -> str:
        given = ("policy.model=m", "policy.engine.kind=vllm", "policy.engine.max_model_len=4096")
        judged = JUDGES if variant != "rlrf" else (f"critic.model={JUDGE}", "reward.model=r")
        config = load_config("own", variant, (*given, *judged, *settings), {})
        have = Devices(cards=(80 * GIB,) * 8, ram=512 * GIB)
        found = {s.stage: s for s in memory_of(config, have=have, shapes=at).stages}
        return str(round(found[stage].most_bytes / GIB))

    row = [size(*where) for where in STAGES.values()]
    divided = ("training.processes=8", f"training.accelerate_config={sharded}")
    row.insert(3, size(*STAGES["DPO"], *divided))
    return [name, *row]


def test_the_table_of_the_documentation_is_computed(tmp_path: Path) -> None:
    page = (PRESETS.parents[1] / "docs" / "memory.md").read_text(encoding="utf-8")
    lines = [[cell.strip() for cell in line.strip("| ").split("|")] for line in page.splitlines()]
    rows = [cells for cells in lines if cells[0] in MODELS]
    assert rows == [table_row(name, tmp_path) for name in MODELS]
