"""Which arguments of vLLM a configuration means, and which settings other engines refuse."""

import pytest

from lpfloop.configs.engines import EngineConfig
from lpfloop.configs.load import load_config, semantic
from lpfloop.configs.schema import ConfigError
from lpfloop.policies.engines.engine import EngineError, UnloadableError
from lpfloop.policies.engines.vllm_arguments import engine_arguments
from lpfloop.policies.workers.open import open_engine
from lpfloop.policies.workers.worker import child_workers
from lpfloop.policies.workers.worker_models import WorkerEngine

SET = {
    "max_num_seqs": 3,
    "max_num_batched_tokens": 1024,
    "quantization": "fp8",
    "kv_cache_dtype": "fp8",
    "enforce_eager": True,
}


def of(**engine) -> EngineConfig:
    return EngineConfig.model_validate({"kind": "vllm", **engine})


def test_what_is_set_reaches_vllm_and_what_is_not_is_left_to_it():
    plain = engine_arguments("m", of(), on_cpu=False)
    assert not {*SET} & {*plain}
    assert engine_arguments("m", of(vllm=SET), on_cpu=False) == plain | SET
    assert engine_arguments("m", of(max_model_len="auto"), on_cpu=False)["max_model_len"] == -1
    assert engine_arguments("m", of(max_model_len=99), on_cpu=False)["max_model_len"] == 99


def test_a_cpu_never_reads_a_prompt_in_pieces():
    assert engine_arguments("m", of(), on_cpu=True)["enable_chunked_prefill"] is False
    pieces = of(vllm={"enable_chunked_prefill": True})
    assert engine_arguments("m", pieces, on_cpu=False)["enable_chunked_prefill"] is True
    with pytest.raises(UnloadableError, match=r"enable_chunked_prefill.*in pieces.*seed"):
        engine_arguments("m", pieces, on_cpu=True)


def test_only_what_can_change_a_row_is_part_of_keys():
    assert semantic(of(vllm={"max_num_seqs": 3, "enforce_eager": True})) == semantic(of())
    assert semantic(of(vllm=SET))["vllm"] == {"quantization": "fp8", "kv_cache_dtype": "fp8"}


@pytest.mark.parametrize("kind", ["transformers", "scripted"])
@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ({"vllm": {"quantization": "fp8"}}, r"engine.vllm.quantization: the \w+ engine has no"),
        ({"max_model_len": "auto"}, r"engine.max_model_len: auto is vLLM's"),
    ],
)
def test_another_engine_refuses_what_it_cannot_heed(tmp_path, kind, engine, said):
    with pytest.raises(EngineError, match=said):
        open_engine("m", of(**{**engine, "kind": kind}), log=tmp_path / "log")


def test_an_argument_that_is_not_allowed_is_refused_with_those_that_are():
    with pytest.raises(ConfigError, match=r"'policy.engine.vllm.gpu'; the keys here are enable_"):
        load_config("tiny", None, ["policy.engine.vllm.gpu=1"], {})


@pytest.mark.model
def test_a_worker_runs_with_them(tiny_policy, tmp_path):
    config = of(cpu_threads=1, max_model_len="auto", vllm={"max_num_seqs": 3})
    start = child_workers(log=tmp_path / "log")
    engine = WorkerEngine("vllm", str(tiny_policy), config, start=start)
    try:
        assert engine.ready().window == 6
    finally:
        engine.close()
