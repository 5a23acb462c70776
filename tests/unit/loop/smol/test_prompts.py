"""The prompts of the world `smol`."""

import random
from pathlib import Path

import pytest

from lpfloop.configs.schema import ConfigError, PromptsConfig
from lpfloop.critics.checks import valid_check
from lpfloop.loop.data.prompts import load_prompts
from lpfloop.loop.smol.prompts import TOGETHER, demands, prompts
from lpfloop.stores.records import Split

ROW = '{"prompt": "Say hi.", "checks": [{"kind": "lowercase"}]}\n'
SPLITS: tuple[Split, ...] = ("train", "dev", "held-out")


def test_sizes() -> None:
    counts = [len(prompts(split)) for split in SPLITS]
    assert counts[0] >= 2000
    assert counts[1:] == [200, 300]


def test_topics_are_in_one_split() -> None:
    topics = [{p.topic for p in prompts(split)} for split in SPLITS]
    assert sum(map(len, topics)) == len(set().union(*topics))


def test_same_each_time() -> None:
    first = prompts("dev")
    prompts.cache_clear()
    assert prompts("dev") == first


def test_checks_can_be_decided() -> None:
    for split in SPLITS:
        for prompt in prompts(split):
            assert len(prompt.checks) == (2 if prompt.family == TOGETHER else 1)
            for check in prompt.checks:
                assert valid_check(check.kind, check.argument) == check


def test_every_family_is_in_every_split() -> None:
    families = {demand.family for demand in demands(random.Random(0))} | {TOGETHER}
    for split in SPLITS:
        assert {p.family for p in prompts(split)} == families


def test_a_run_takes_them() -> None:
    found = load_prompts(PromptsConfig(source="smol"), seed=0)
    assert {p.split for p in found} == {"train", "dev", "held-out"}
    assert all(p.eval_set is None and p.source == "smol" for p in found)


def test_two_files_two_sets(tmp_path: Path) -> None:
    (tmp_path / "other.jsonl").write_text(
        '{"prompt": "Say hi.", "checks": [{"kind": "lowercase"}]}\n'
    )
    config = PromptsConfig(source="smol", held_out={"other": str(tmp_path / "other.jsonl")})
    eval_sets = [p.eval_set for p in load_prompts(config, seed=0) if p.split == "held-out"]
    assert sorted(set(map(str, eval_sets))) == ["other", "smol"]
    assert eval_sets.count("smol") == 300


@pytest.mark.parametrize("setting", ["held_out", "dev"])
def test_refused_files(tmp_path: Path, setting: str) -> None:
    (tmp_path / "own.jsonl").write_text(ROW)
    config = PromptsConfig.model_validate({"source": "smol", setting: str(tmp_path / "own.jsonl")})
    with pytest.raises(ConfigError, match=f"prompts.{setting}"):
        load_prompts(config, seed=0)
