"""vLLM arguments of a configuration, and putting vLLM to sleep and waking it.

The tests need no GPU: a fake LLM obeys vLLM's rules for tags (v1/executor/abstract.py).
"""

from collections.abc import Sequence

import pytest

from lpfloop.configs.engines import EngineConfig
from lpfloop.configs.load import semantic
from lpfloop.policies.engines.engine import EngineError
from lpfloop.policies.engines.vllm_engine import VLLMModel, engine_arguments
from lpfloop.policies.workers.engine_factory import open_engine

SET = {
    "max_num_seqs": 3,
    "max_num_batched_tokens": 1024,
    "quantization": "fp8",
    "kv_cache_dtype": "fp8",
    "enforce_eager": True,
}


def of(**engine) -> EngineConfig:
    return EngineConfig.model_validate({"kind": "vllm", **engine})


def test_arguments():
    plain = engine_arguments("m", of(), on_cpu=False)
    assert not {*SET} & {*plain}
    assert engine_arguments("m", of(vllm=SET), on_cpu=False) == plain | SET
    assert engine_arguments("m", of(max_model_len="auto"), on_cpu=False)["max_model_len"] == -1
    assert engine_arguments("m", of(max_model_len=99), on_cpu=False)["max_model_len"] == 99


def test_chunked_prefill():
    assert engine_arguments("m", of(), on_cpu=True)["enable_chunked_prefill"] is False
    assert "enable_chunked_prefill" not in engine_arguments("m", of(), on_cpu=False)


def test_keys():
    assert semantic(of(vllm={"max_num_seqs": 3, "enforce_eager": True})) == semantic(of())
    assert semantic(of(vllm=SET))["vllm"] == {
        "quantization": "fp8",
        "kv_cache_dtype": "fp8",
    }


def test_other_engines_refuse(subtests, tmp_path):
    for kind in ["transformers", "scripted"]:
        for engine, said in [
            (
                {"vllm": {"quantization": "fp8"}},
                r"engine.vllm.quantization: the \w+ engine does not support it",
            ),
            ({"max_model_len": "auto"}, r"engine.max_model_len: auto is vLLM's"),
        ]:
            with (
                subtests.test(kind=kind, engine=engine, said=said),
                pytest.raises(EngineError, match=said),
            ):
                open_engine("m", of(**{**engine, "kind": kind}), log=tmp_path / "log")


TAGS = {"weights", "kv_cache"}


class SleepyLLM:
    """Holds weights and a cache on a device; raises where vLLM warns."""

    def __init__(self) -> None:
        self.sleeping = set[str]()
        self.weights = "old"

    def sleep(self, level: int) -> None:
        assert not self.sleeping
        self.sleeping = set(TAGS)
        if level == 2:
            self.weights = "lost"

    def wake_up(self, tags: Sequence[str] = tuple(TAGS)) -> None:
        assert set(tags) <= self.sleeping
        self.sleeping -= set(tags)

    def load(self) -> None:
        """Load weights: they must be awake and the cache asleep, as both do not fit."""
        assert self.sleeping == {"kv_cache"}
        self.weights = "new"


class Sleeping(VLLMModel):
    """A model with a given LLM."""

    def __init__(self, llm: SleepyLLM) -> None:
        self._llm = llm


def test_sleep_and_wake() -> None:
    llm = SleepyLLM()
    rest = Sleeping(llm)
    rest.wake()
    for order in (rest.sleep, rest.sleep):
        order()
        assert llm.sleeping == TAGS
    for order in (rest.wake, rest.wake):
        order()
        assert not llm.sleeping
    assert llm.weights == "old"


def test_new_weights() -> None:
    for asleep in (True, False):
        llm = SleepyLLM()
        rest = Sleeping(llm)
        if asleep:
            rest.sleep()
        with rest.new_weights():
            llm.load()
        assert not llm.sleeping
        assert llm.weights == "new"
