"""The arithmetic of memory agrees with what torch keeps, and with sizes that are known."""

import json
from pathlib import Path

import pytest
from model_sizes import GLM_4_9B, LLAMA_7B, LLAMA_13B

from lpfloop.configs.training import TrainingConfig
from lpfloop.policies.memory.activations import (
    AUTOCAST,
    HALF,
    PLAIN,
    Precision,
    TrainingPass,
    chunked_head_bytes,
)
from lpfloop.policies.memory.adapter_sizes import Adapters
from lpfloop.policies.memory.engine_memory import (
    Hosting,
    cache_bytes,
    concurrency,
    longest_context,
    number_bytes,
    transformers_parts,
    vllm_parts,
)
from lpfloop.policies.memory.shapes import UnknownShapeError, configured, shape_of
from lpfloop.policies.memory.sharding import Sharding, read_sharding, sharding_of
from lpfloop.policies.memory.states import TrainedStates, states_of
from lpfloop.policies.memory.training_memory import (
    Workload,
    canary_parts,
    distillation_parts,
    online_parts,
    trl_parts,
)
from lpfloop.policies.memory.verdicts import GIB, Arithmetic, StageMemory, at_most, fixed
from lpfloop.policies.trainers.training_fit import fit_of

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "glm", "olmo2")
SIZES = {
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 960,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": None,
}


def total(parts) -> int:
    return sum(part.most_bytes for part in parts)


def work(method="dpo", **changes) -> Workload:
    given = {"rows": 2, "length": 4096, "accumulation": 4, "sharding": Sharding(processes=1)}
    return Workload(method=method, **{**given, "on_gpu": True, **changes})


@pytest.mark.parametrize(
    ("config", "billions"), [(LLAMA_13B, 13.016), (LLAMA_7B, 6.738), (GLM_4_9B, 9.400)]
)
def test_parameters_are_counted_by_the_architecture(config, billions) -> None:
    assert configured(config).parameters / 1e9 == pytest.approx(billions, abs=0.001)


@pytest.mark.model
@pytest.mark.parametrize("kind", FAMILIES)
def test_a_folders_sizes_are_those_of_its_model(tmp_path: Path, kind: str) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(kind, **SIZES)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    shape = shape_of(tmp_path)
    # The counted ones leave out biases and the norms of queries and keys.
    counted = configured(json.loads((tmp_path / "config.json").read_bytes()))
    assert counted.parameters == pytest.approx(shape.parameters, rel=0.01)
    assert shape.file_bytes == pytest.approx(4 * shape.parameters, rel=0.01)
    assert (shape.heads, shape.kv_heads, shape.head_dim) == (4, 2, 64)


def kept_by_torch(model, body, autocast: bool) -> int:
    """Return the bytes that autograd keeps of a pass through `body` beside the weights."""
    import torch

    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept, held = {}, []

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
            held.append(tensor)
        return tensor

    ids = torch.randint(0, 900, (2, 384))
    mask = torch.ones_like(ids)
    mask[0, :40] = 0
    with (
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
        torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast),
    ):
        body(input_ids=ids, attention_mask=mask, use_cache=False)
    return sum(kept.values())


def kept_by_arithmetic(config, precision: Precision, **given) -> int:
    shape = configured(config.to_dict())
    casts = precision.narrow * shape.matrices if precision.is_mixed else 0
    made = TrainingPass(
        rows=2, length=384, precision=precision, recomputed=False, casts=casts, **given
    )
    return made.kept_bytes(shape)


@pytest.mark.model
@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma2", "olmo2"])
@pytest.mark.parametrize("precision", [PLAIN, AUTOCAST, HALF])
def test_what_a_pass_keeps_is_what_torch_keeps(kind: str, precision: Precision) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(kind, **SIZES)
    dtype = torch.float32 if precision.wide > 2 else torch.bfloat16
    model = AutoModelForCausalLM.from_config(config, dtype=dtype).train()
    seen = kept_by_torch(model, model.model, precision is not PLAIN)
    assert kept_by_arithmetic(config, precision) == pytest.approx(seen, rel=0.05)


@pytest.mark.model
@pytest.mark.parametrize("kind", ["llama", "qwen3"])
@pytest.mark.parametrize("precision", [PLAIN, AUTOCAST, HALF])
def test_with_adapters_it_is_what_torch_keeps_of_a_frozen_model(
    kind: str, precision: Precision
) -> None:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(kind, **SIZES)
    dtype = torch.float32 if precision.wide > 2 else torch.bfloat16
    made = AutoModelForCausalLM.from_config(config, dtype=dtype).train()
    given = LoraConfig(r=16, target_modules="all-linear")
    model = get_peft_model(made, given)
    model.enable_input_require_grads()
    trained = [p for p in model.parameters() if p.requires_grad]
    adapters = Adapters(rank=16)
    assert sum(p.numel() for p in trained) == adapters.parameters(configured(config.to_dict()))
    seen = kept_by_torch(model, model.base_model.model.model, precision is not PLAIN)
    kept = kept_by_arithmetic(config, precision, adapters=adapters)
    assert kept == pytest.approx(seen, rel=0.05)


@pytest.mark.model
@pytest.mark.parametrize("precision", [PLAIN, AUTOCAST])
def test_eager_attention_keeps_its_probabilities(precision: Precision) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model("llama", **SIZES)
    model = AutoModelForCausalLM.from_config(
        config, dtype=torch.float32, attn_implementation="eager"
    ).train()
    seen = kept_by_torch(model, model.model, precision is not PLAIN)
    kept = kept_by_arithmetic(config, precision, attention="eager")
    assert kept == pytest.approx(seen, rel=0.05)
    flash = kept_by_arithmetic(config, precision, attention="flash_attention_2")
    assert flash < kept_by_arithmetic(config, precision) < kept


def test_a_recomputed_pass_keeps_the_layers_inputs_and_one_layer() -> None:
    shape = configured(LLAMA_13B)
    given = {"rows": 2, "length": 4096, "precision": AUTOCAST}
    whole = TrainingPass(recomputed=False, **given).kept_bytes(shape)
    again = TrainingPass(recomputed=True, **given).kept_bytes(shape)
    inputs = 8192 * 4 * 5120 * 42
    assert again == pytest.approx(inputs + whole / 40, rel=0.02)


def test_trained_weights_take_16_bytes_each_and_20_under_data_parallelism() -> None:
    parameters = configured(LLAMA_13B).parameters
    states = TrainedStates(trained=parameters)
    alone = total(states.parts(Sharding(processes=1)))
    several = total(states.parts(sharding_of(None, 16)))
    assert (alone, several) == (16 * parameters, 20 * parameters)


@pytest.mark.parametrize(
    ("told", "per_parameter"),
    [
        ({"distributed_type": "MULTI_GPU"}, 20),
        ({"distributed_type": "FSDP"}, 2),
        ({"distributed_type": "FSDP", "fsdp_config": {"fsdp_version": 2}}, 2),
        ({"distributed_type": "FSDP", "fsdp_config": {"fsdp_offload_params": True}}, 0),
        (
            {
                "distributed_type": "FSDP",
                "fsdp_config": {"fsdp_sharding_strategy": "SHARD_GRAD_OP"},
            },
            4 + 12 / 8,
        ),
        (
            {"distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": 1}},
            8 + 8 / 8,
        ),
        (
            {
                "distributed_type": "DEEPSPEED",
                "deepspeed_config": {"zero_stage": 3, "offload_optimizer_device": "cpu"},
            },
            1,
        ),
    ],
)
def test_the_launchers_file_says_how_states_are_divided(told, per_parameter) -> None:
    parameters = 1_000_000
    states = TrainedStates(trained=parameters)
    assert total(states.parts(read_sharding(told, 8))) == pytest.approx(per_parameter * parameters)


def test_a_launcher_that_is_not_known_is_said_to_be(tmp_path: Path) -> None:
    assert "MEGATRON" in read_sharding({"distributed_type": "MEGATRON_LM"}, 8).unknown
    (tmp_path / "broken.yaml").write_text("a: [", encoding="utf-8")
    assert "cannot be read" in sharding_of(str(tmp_path / "broken.yaml"), 8).unknown


def test_the_output_layers_gradient_is_float32_and_its_logits_come_in_tiles() -> None:
    shape = configured(GLM_4_9B)
    held = chunked_head_bytes(shape, AUTOCAST, tokens=4096, on_gpu=True)
    assert held < 4 * 4096 * shape.vocabulary + 4 * shape.embedding
    assert held > 4 * shape.embedding


def test_one_pass_a_step_has_no_gradients_beside_its_activations() -> None:
    shape = configured(LLAMA_7B)
    several, one = (
        total(trl_parts(shape, work(length=512, accumulation=count))) for count in (4, 1)
    )
    assert several - one <= 4 * shape.parameters
    assert one < several


def test_another_reference_is_asked_before_there_are_gradients_and_moments() -> None:
    shape = configured(LLAMA_7B)
    whole = {p.name: p.most_bytes for p in trl_parts(shape, work(reference=True))}
    assert whole["reference"] == 0
    adapted = fit_of(TrainingConfig.model_validate({"lora": {"r": 16}}))
    parts = {p.name: p.most_bytes for p in trl_parts(shape, work(reference=True, fit=adapted))}
    assert parts["reference"] == pytest.approx(2 * shape.parameters, rel=0.05)


def test_divided_in_eight_by_the_setting_it_takes_two_bytes_each() -> None:
    states = states_of(configured(LLAMA_7B), on_gpu=True)
    divided = sharding_of(None, 8, "fsdp2")
    assert total(states.parts(divided)) == pytest.approx(2 * states.trained)


@pytest.mark.parametrize(
    ("settings", "per_parameter"),
    [
        ({}, 16),
        ({"weights": "bfloat16"}, 2 + 2 + 2 + 8),
        # An embedding's moments, 0.019 of all, stay in float32.
        ({"optimizer": "adamw_8bit"}, 4 + 4 + 2 * (1 + 1 / 64) + 0.019 * 6),
        # Adapters of rank 16 are 0.006 of a 7B model, at 16 bytes.
        ({"lora": {"r": 16}}, 2 + 0.006 * 16),
        ({"lora": {"r": 16, "quantise": "nf4"}}, 0.516 + 0.039 * 1.5 + 0.006 * 16 + 0.013),
    ],
)
def test_settings_change_what_a_weight_takes(settings, per_parameter) -> None:
    shape = configured(LLAMA_7B)
    fit = fit_of(TrainingConfig.model_validate(settings))
    states = states_of(shape, fit, on_gpu=True).parts(Sharding(processes=1))
    assert total(states) / shape.parameters == pytest.approx(per_parameter, rel=0.02)


def test_the_adapters_of_named_layers_are_fewer() -> None:
    shape = configured(LLAMA_7B)
    some = Adapters(rank=8, targets=("q_proj", "v_proj")).parameters(shape)
    assert some == 32 * 8 * 2 * 2 * 4096
    assert some < Adapters(rank=8).parameters(shape) / 4


def test_recomputation_follows_its_setting() -> None:
    shape = configured(LLAMA_7B)
    passes = []
    for said in ("always", "auto", "never"):
        fit = fit_of(TrainingConfig(recompute=said))
        parts = trl_parts(shape, work(length=512, fit=fit))
        passes.append(next(p.most_bytes for p in parts if p.name == "pass"))
    assert passes[0] == passes[1] < passes[2]


def test_with_adapters_ppo_holds_one_body_for_all_three() -> None:
    shape = configured(LLAMA_7B)
    fit = fit_of(TrainingConfig.model_validate({"lora": {"r": 16}}))
    given = {"length": 512, "answer": 300, "fit": fit, "reward_number": 2}
    parts = online_parts(shape, shape.as_classifier(), work("ppo", **given))
    held = sum(p.most_bytes for p in parts if p.name not in ("pass", "CUDA"))
    # The body and the reward model in two bytes each, and adapters twice.
    assert held / shape.parameters == pytest.approx(4 + 2 * 0.006 * 16, rel=0.02)


def test_ppo_holds_36_bytes_a_parameter_before_anything_is_computed() -> None:
    shape = configured(LLAMA_7B)
    given = {"length": 512, "answer": 300, "reward_number": 2}
    parts = online_parts(shape, shape.as_classifier(), work("ppo", **given))
    held = sum(p.most_bytes for p in parts if p.name not in ("pass", "CUDA"))
    assert held / shape.parameters == pytest.approx(36, rel=0.02)


def test_quark_holds_its_update_once_more_as_its_optimizer_is_not_fused() -> None:
    shape = configured(LLAMA_7B)
    parts = online_parts(shape, None, work("quark", length=512, answer=300))
    (passing,) = [p for p in parts if p.name == "pass"]
    assert passing.least_bytes == 4 * shape.parameters


@pytest.mark.parametrize("method", ["grpo", "rloo", "online_dpo"])
def test_methods_of_groups_hold_no_value_model_and_a_reward_model_only_if_there_is_one(
    method,
) -> None:
    shape = configured(LLAMA_7B)
    given = {"length": 512, "answer": 300, "reward_number": 2}
    for reward, bytes_each in ((None, 18), (shape.as_classifier(), 20)):
        parts = online_parts(shape, reward, work(method, **given))
        held = sum(p.most_bytes for p in parts if p.name not in ("pass", "CUDA"))
        # Weights, gradients and two moments in four bytes each; the reference in two.
        assert held / shape.parameters == pytest.approx(bytes_each, rel=0.02)


def test_a_pass_of_online_dpo_learns_two_answers_a_row() -> None:
    shape = configured(LLAMA_7B)
    given = {"length": 4096, "answer": 64, "fit": fit_of(TrainingConfig(recompute="never"))}
    passes = []
    for method in ("grpo", "online_dpo"):
        parts = online_parts(shape, None, work(method, **given))
        passes.append(next(p.most_bytes for p in parts if p.name == "pass"))
    assert passes[1] > 1.7 * passes[0]


def test_the_canary_takes_the_whole_model_in_the_type_in_which_it_computes() -> None:
    shape = configured(LLAMA_13B)
    assert 26e9 < total(canary_parts(shape, length=4096, on_gpu=True)) < 33e9
    assert total(canary_parts(shape, length=4096, on_gpu=False)) > 52e9


def test_a_cache_has_the_heads_of_keys_alone() -> None:
    hosting = Hosting(number_bytes=2, context=4096)
    assert cache_bytes(configured(LLAMA_13B), hosting, tokens=1024) == 1024 * 2 * 40 * 5120 * 2
    assert cache_bytes(configured(GLM_4_9B), hosting, tokens=1024) == 1024 * 2 * 40 * 2 * 128 * 2


def test_heads_are_divided_over_gpus_and_never_cut() -> None:
    glm = configured(GLM_4_9B)
    sizes = [
        cache_bytes(glm, Hosting(number_bytes=2, context=64, tensor_parallel=n), tokens=64)
        for n in (1, 2, 4)
    ]
    assert sizes[0] == 2 * sizes[1] == 2 * sizes[2]


def test_layers_with_a_window_keep_no_more_than_that() -> None:
    whole = configured({**LLAMA_7B})
    half = configured(
        {**LLAMA_7B, "sliding_window": 1024, "layer_types": ["sliding_attention", "x"] * 16}
    )
    hosting = Hosting(number_bytes=2, context=8192)
    far = [cache_bytes(shape, hosting, tokens=8192) for shape in (whole, half)]
    assert far[1] == pytest.approx(far[0] * (1 / 2 + 1 / 2 * 1024 / 8192))
    near = [cache_bytes(shape, hosting, tokens=512) for shape in (whole, half)]
    assert near[0] == near[1]


def test_what_vllm_has_left_is_divided_into_requests() -> None:
    shape, hosting = configured(LLAMA_13B), Hosting(number_bytes=2, context=4096)
    card = 80 * GIB
    fits = concurrency(shape, hosting, share_bytes=72 * GIB, card_bytes=card)
    assert fits == pytest.approx((72 - 26.9) / 3.125, rel=0.1)
    room = 2 * cache_bytes(shape, hosting, tokens=4096)
    assert longest_context(shape, hosting, room_bytes=room) == 8192
    divided = Hosting(number_bytes=2, context=4096, tensor_parallel=4)
    assert total(vllm_parts(shape, divided, card)) < total(vllm_parts(shape, hosting, card)) / 2


def test_the_transformers_engine_draws_no_more_than_its_group_at_once() -> None:
    shape, hosting = configured(LLAMA_7B), Hosting(number_bytes=2, context=2048)
    few, group, many = (
        total(transformers_parts(shape, hosting, rows=rows, answer=256, on_gpu=True))
        for rows in (1, 64, 1000)
    )
    assert few < group == many


def test_float32_files_are_halved_by_vllm_alone() -> None:
    trained = configured(LLAMA_7B).as_saved(4)
    assert number_bytes("auto", trained, on_gpu=True, halved=True) == 2
    assert number_bytes("auto", trained, on_gpu=True, halved=False) == 4
    assert number_bytes("auto", configured(LLAMA_7B), on_gpu=False, halved=True) == 4


def test_sizes_that_are_not_there_are_said_to_be_unknown(tmp_path: Path) -> None:
    with pytest.raises(UnknownShapeError, match="not known until"):
        shape_of(tmp_path)
    with pytest.raises(UnknownShapeError, match="no hidden_size"):
        configured({"num_attention_heads": 4, "model_type": "llama"})
    with pytest.raises(UnknownShapeError, match="kv_lora_rank"):
        configured({**LLAMA_7B, "kv_lora_rank": 512})


@pytest.mark.parametrize(
    ("least", "most", "verdict"),
    [
        (50, 60, "fits"),
        (50, 90, "may not fit"),
        (110, 110, "may not fit"),
        (120, 0, "does not fit"),
    ],
)
def test_a_stage_is_refused_beyond_the_uncertainty_alone(least, most, verdict) -> None:
    parts = (fixed("weights", least), at_most("pass", max(0, most - least)))
    stage = StageMemory(stage="train", device="a GPU", has_bytes=100, parts=parts)
    assert stage.verdict == verdict
    lines = list(Arithmetic(stages=(stage,)).lines())
    assert (len(lines) == 2) == (verdict != "fits")


def test_a_teacher_lies_beside_the_policy_but_not_beside_adapters() -> None:
    shape = configured(LLAMA_7B)
    given = {"answer": 512, "accumulation": 4}
    plain = distillation_parts(shape, work("distil", reference=True, **given))
    sizes = {part.name: part.most_bytes for part in plain}
    assert sizes["teacher"] == 2 * shape.parameters
    alone = distillation_parts(shape, work("distil", **given))
    assert total(plain) - total(alone) == 2 * shape.parameters
    adapted = fit_of(TrainingConfig.model_validate({"lora": {"r": 16}}))
    assert total(distillation_parts(shape, work("distil", fit=adapted, **given))) < 60 * GIB
    # Whole logits of the answers: 4 bytes a word and token, several times.
    kept = fit_of(TrainingConfig(recompute="never"))
    short, long = (
        total(distillation_parts(shape, work("distil", fit=kept, accumulation=4, answer=answer)))
        for answer in (512, 1024)
    )
    assert long - short == 6 * 2 * 512 * shape.vocabulary * 4
