"""The arithmetic of memory agrees with torch's allocations, and with known sizes."""

from dataclasses import replace
from pathlib import Path

import pytest
from models import GLM_4_9B, LLAMA_7B, LLAMA_13B

from lpfloop.configs.training import TrainingConfig
from lpfloop.loop.daemon.memory_check import StageMemory
from lpfloop.policies.memory.shapes import UnknownShapeError, shape_of, shape_of_config
from lpfloop.policies.memory.terms import (
    AUTOCAST,
    GIB,
    Inference,
    Workload,
    at_most,
    fixed_term,
    pass_bytes,
    state_terms,
    training_terms,
    vllm_terms,
)
from lpfloop.policies.trainers.training_fit import PLAIN, fit_of


def total(terms) -> int:
    return sum(term.most_bytes for term in terms)


def states(shape, **changes) -> int:
    return total(state_terms(shape, work(**changes)))


def work(method="dpo", **changes) -> Workload:
    given = {"rows": 2, "length": 4096, "accumulation": 4, "on_gpu": True}
    return Workload(method=method, **{**given, **changes})


def test_parameter_counts(subtests):
    for config, billions in [(LLAMA_13B, 13.016), (LLAMA_7B, 6.738), (GLM_4_9B, 9.400)]:
        with subtests.test(config=config, billions=billions):
            assert shape_of_config(config).parameters / 1e9 == pytest.approx(billions, abs=0.001)


def test_recomputed_pass() -> None:
    shape = shape_of_config(LLAMA_13B)
    kept, recomputed = (replace(PLAIN, gradient_checkpointing=when) for when in ("never", "always"))
    whole = pass_bytes(shape, AUTOCAST, kept, rows=2, length=4096)
    again = pass_bytes(shape, AUTOCAST, recomputed, rows=2, length=4096)
    inputs = 8192 * 4 * 5120 * 42
    assert again == pytest.approx(inputs + whole / 40, rel=0.02)


def test_bytes_a_weight() -> None:
    shape = shape_of_config(LLAMA_13B)
    alone, several = states(shape), states(shape, processes=16)
    divided = states(shape, processes=8, divided=True)
    assert [alone, several, divided] == [n * shape.parameters for n in (16, 20, 2)]


def test_settings(subtests):
    for settings, per_parameter in [
        ({}, 16),
        # An embedding's moments, 0.019 of all weights, stay in float32.
        ({"optimizer": "adamw_8bit"}, 4 + 4 + 2 * (1 + 1 / 64) + 0.019 * 6),
        # Adapters of rank 16 are 0.006 of a 7B model, at 16 bytes.
        ({"lora": {"r": 16}}, 2 + 0.006 * 16),
        ({"lora": {"r": 16, "quantise": "nf4"}}, 0.516 + 0.039 * 1.5 + 0.006 * 16 + 0.013),
    ]:
        with subtests.test(settings=settings, per_parameter=per_parameter):
            shape = shape_of_config(LLAMA_7B)
            fit = fit_of(TrainingConfig.model_validate(settings))
            found = states(shape, fit=fit)
            assert found / shape.parameters == pytest.approx(per_parameter, rel=0.02)


def test_bytes_by_method() -> None:
    shape = shape_of_config(LLAMA_7B)
    reward = shape.as_classifier()
    given = {"length": 512, "answer": 300, "reward_number": 2, "reference": True}
    cases = [
        ("ppo", reward, 36),
        ("grpo", None, 18),
        ("rloo", reward, 20),
        ("online_dpo", None, 18),
    ]
    for method, rewarded, bytes_each in cases:
        terms = training_terms(shape, work(method, **given), rewarded)
        held = sum(t.most_bytes for t in terms if t.name not in ("activations", "CUDA"))
        assert held / shape.parameters == pytest.approx(bytes_each, rel=0.02), method


def test_cache() -> None:
    inference = Inference(weight_bytes=2, context=4096)
    assert inference.cache(shape_of_config(LLAMA_13B), 1024) == 1024 * 2 * 40 * 5120 * 2
    assert inference.cache(shape_of_config(GLM_4_9B), 1024) == 1024 * 2 * 40 * 2 * 128 * 2


def test_sliding_window() -> None:
    whole = shape_of_config({**LLAMA_7B})
    half = shape_of_config(
        {**LLAMA_7B, "sliding_window": 1024, "layer_types": ["sliding_attention", "x"] * 16}
    )
    inference = Inference(weight_bytes=2, context=8192)
    far = [inference.cache(shape, 8192) for shape in (whole, half)]
    assert far[1] == pytest.approx(far[0] * (1 / 2 + 1 / 2 * 1024 / 8192))
    near = [inference.cache(shape, 512) for shape in (whole, half)]
    assert near[0] == near[1]


def test_tensor_parallel() -> None:
    shape, card = shape_of_config(LLAMA_13B), 80 * GIB
    whole = Inference(weight_bytes=2, context=4096)
    divided = Inference(weight_bytes=2, context=4096, tensor_parallel=4)
    assert total(vllm_terms(shape, whole, card)) / GIB == pytest.approx(24.2 + 3.1 + 3.6, rel=0.1)
    assert total(vllm_terms(shape, divided, card)) < total(vllm_terms(shape, whole, card)) / 2


def test_unknown_sizes(tmp_path: Path) -> None:
    with pytest.raises(UnknownShapeError, match="not known until"):
        shape_of(tmp_path)
    with pytest.raises(UnknownShapeError, match="lacks hidden_size"):
        shape_of_config({"num_attention_heads": 4, "model_type": "llama"})
    with pytest.raises(UnknownShapeError, match="kv_lora_rank"):
        shape_of_config({**LLAMA_7B, "kv_lora_rank": 512})


def test_verdicts(subtests):
    for least, most, verdict in [
        (50, 90, "fits"),
        (50, 91, "may not fit"),
        (110, 110, "may not fit"),
        (112, 112, "does not fit"),
    ]:
        with subtests.test(least=least, most=most, verdict=verdict):
            terms = (fixed_term("weights", least), at_most("activations", most - least))
            stage = StageMemory(stage="train", device="a GPU", has_bytes=100, terms=terms)
            assert stage.verdict == verdict
