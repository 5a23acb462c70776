"""The arithmetic of memory agrees with what torch keeps, and with sizes that are known."""

from pathlib import Path

import pytest
from models import GLM_4_9B, LLAMA_7B, LLAMA_13B

from lpfloop.configs.training import TrainingConfig
from lpfloop.policies.memory.activations import (
    AUTOCAST,
    TrainingPass,
)
from lpfloop.policies.memory.engine_memory import (
    Hosting,
    cache_bytes,
    concurrency,
    longest_context,
    vllm_parts,
)
from lpfloop.policies.memory.shapes import UnknownShapeError, configured, shape_of
from lpfloop.policies.memory.sharding import Sharding, read_sharding, sharding_of
from lpfloop.policies.memory.states import TrainedStates, states_of
from lpfloop.policies.memory.training_memory import (
    Workload,
    online_parts,
)
from lpfloop.policies.memory.verdicts import GIB, Arithmetic, StageMemory, at_most, fixed
from lpfloop.policies.trainers.training_fit import fit_of


def total(parts) -> int:
    return sum(part.most_bytes for part in parts)


def work(method="dpo", **changes) -> Workload:
    given = {"rows": 2, "length": 4096, "accumulation": 4, "sharding": Sharding(processes=1)}
    return Workload(method=method, **{**given, "on_gpu": True, **changes})


def test_parameter_counts(subtests):
    for config, billions in [(LLAMA_13B, 13.016), (LLAMA_7B, 6.738), (GLM_4_9B, 9.400)]:
        with subtests.test(config=config, billions=billions):
            assert configured(config).parameters / 1e9 == pytest.approx(billions, abs=0.001)


def test_recomputed_pass() -> None:
    shape = configured(LLAMA_13B)
    given = {"rows": 2, "length": 4096, "precision": AUTOCAST}
    whole = TrainingPass(recomputed=False, **given).kept_bytes(shape)
    again = TrainingPass(recomputed=True, **given).kept_bytes(shape)
    inputs = 8192 * 4 * 5120 * 42
    assert again == pytest.approx(inputs + whole / 40, rel=0.02)


def test_bytes_a_weight() -> None:
    parameters = configured(LLAMA_13B).parameters
    states = TrainedStates(trained=parameters)
    alone = total(states.parts(Sharding(processes=1)))
    several = total(states.parts(sharding_of(None, 16)))
    divided = total(states.parts(sharding_of(None, 8, "fsdp2")))
    assert (alone, several, divided) == (16 * parameters, 20 * parameters, 2 * parameters)


def test_sharding_by_launcher_file(subtests):
    for told, per_parameter in [
        ({"distributed_type": "MULTI_GPU"}, 20),
        ({"distributed_type": "FSDP"}, 2),
        ({"distributed_type": "FSDP", "fsdp_config": {"fsdp_offload_params": True}}, 0),
        ({"distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": 1}}, 8 + 8 / 8),
    ]:
        with subtests.test(told=told, per_parameter=per_parameter):
            parameters = 1_000_000
            states = TrainedStates(trained=parameters)
            assert total(states.parts(read_sharding(told, 8))) == pytest.approx(
                per_parameter * parameters
            )


def test_unknown_launcher(tmp_path: Path) -> None:
    assert "MEGATRON" in read_sharding({"distributed_type": "MEGATRON_LM"}, 8).unknown
    (tmp_path / "broken.yaml").write_text("a: [", encoding="utf-8")
    assert "cannot be read" in sharding_of(str(tmp_path / "broken.yaml"), 8).unknown


def test_settings(subtests):
    for settings, per_parameter in [
        ({}, 16),
        ({"weights": "bfloat16"}, 2 + 2 + 2 + 8),
        # An embedding's moments, 0.019 of all, stay in float32.
        ({"optimizer": "adamw_8bit"}, 4 + 4 + 2 * (1 + 1 / 64) + 0.019 * 6),
        # Adapters of rank 16 are 0.006 of a 7B model, at 16 bytes.
        ({"lora": {"r": 16}}, 2 + 0.006 * 16),
        ({"lora": {"r": 16, "quantise": "nf4"}}, 0.516 + 0.039 * 1.5 + 0.006 * 16 + 0.013),
    ]:
        with subtests.test(settings=settings, per_parameter=per_parameter):
            shape = configured(LLAMA_7B)
            fit = fit_of(TrainingConfig.model_validate(settings))
            states = states_of(shape, fit, on_gpu=True).parts(Sharding(processes=1))
            assert total(states) / shape.parameters == pytest.approx(per_parameter, rel=0.02)


def test_bytes_by_method() -> None:
    shape = configured(LLAMA_7B)
    reward = shape.as_classifier()
    given = {"length": 512, "answer": 300, "reward_number": 2}
    cases = [
        ("ppo", reward, 36),
        ("grpo", None, 18),
        ("rloo", reward, 20),
        ("online_dpo", None, 18),
    ]
    for method, rewarded, bytes_each in cases:
        parts = online_parts(shape, rewarded, work(method, **given))
        held = sum(p.most_bytes for p in parts if p.name not in ("pass", "CUDA"))
        assert held / shape.parameters == pytest.approx(bytes_each, rel=0.02), method
    # Quark's optimizer is not fused: it holds its update once more.
    parts = online_parts(shape, None, work("quark", length=512, answer=300))
    (passing,) = [p for p in parts if p.name == "pass"]
    assert passing.least_bytes == 4 * shape.parameters


def test_cache() -> None:
    hosting = Hosting(number_bytes=2, context=4096)
    assert cache_bytes(configured(LLAMA_13B), hosting, tokens=1024) == 1024 * 2 * 40 * 5120 * 2
    assert cache_bytes(configured(GLM_4_9B), hosting, tokens=1024) == 1024 * 2 * 40 * 2 * 128 * 2


def test_sliding_window() -> None:
    whole = configured({**LLAMA_7B})
    half = configured(
        {**LLAMA_7B, "sliding_window": 1024, "layer_types": ["sliding_attention", "x"] * 16}
    )
    hosting = Hosting(number_bytes=2, context=8192)
    far = [cache_bytes(shape, hosting, tokens=8192) for shape in (whole, half)]
    assert far[1] == pytest.approx(far[0] * (1 / 2 + 1 / 2 * 1024 / 8192))
    near = [cache_bytes(shape, hosting, tokens=512) for shape in (whole, half)]
    assert near[0] == near[1]


def test_vllm_concurrency() -> None:
    shape, hosting = configured(LLAMA_13B), Hosting(number_bytes=2, context=4096)
    card = 80 * GIB
    fits = concurrency(shape, hosting, share_bytes=72 * GIB, card_bytes=card)
    assert fits == pytest.approx((72 - 26.9) / 3.125, rel=0.1)
    room = 2 * cache_bytes(shape, hosting, tokens=4096)
    assert longest_context(shape, hosting, room_bytes=room) == 8192
    divided = Hosting(number_bytes=2, context=4096, tensor_parallel=4)
    assert total(vllm_parts(shape, divided, card)) < total(vllm_parts(shape, hosting, card)) / 2


def test_unknown_sizes(tmp_path: Path) -> None:
    with pytest.raises(UnknownShapeError, match="not known until"):
        shape_of(tmp_path)
    with pytest.raises(UnknownShapeError, match="no hidden_size"):
        configured({"num_attention_heads": 4, "model_type": "llama"})
    with pytest.raises(UnknownShapeError, match="kv_lora_rank"):
        configured({**LLAMA_7B, "kv_lora_rank": 512})


def test_verdicts(subtests):
    for least, most, verdict in [
        (50, 60, "fits"),
        (50, 90, "may not fit"),
        (110, 110, "may not fit"),
        (120, 0, "does not fit"),
    ]:
        with subtests.test(least=least, most=most, verdict=verdict):
            parts = (fixed("weights", least), at_most("pass", max(0, most - least)))
            stage = StageMemory(stage="train", device="a GPU", has_bytes=100, parts=parts)
            assert stage.verdict == verdict
            lines = list(Arithmetic(stages=(stage,)).lines())
            assert (len(lines) == 2) == (verdict != "fits")
