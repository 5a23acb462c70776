"""The arithmetic of memory agrees with torch's allocations, and with the sizes of models."""

import json
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

from lpfloop.configs.training import LoRAConfig as LoRASettings
from lpfloop.policies.memory.shapes import shape_of, shape_of_config
from lpfloop.policies.memory.terms import (
    AUTOCAST,
    FULL,
    HALF,
    Precision,
    adapter_parameters,
    pass_bytes,
)
from lpfloop.policies.trainers.training_fit import PLAIN, TrainingFit

pytestmark = pytest.mark.model

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


def test_sizes_of_folder(tmp_path: Path, subtests):
    for kind in ("llama", "qwen3", "gemma2", "glm", "olmo2"):
        with subtests.test(kind=kind):
            config = AutoConfig.for_model(kind, **SIZES)
            folder = tmp_path / kind
            AutoModelForCausalLM.from_config(config).save_pretrained(folder)
            shape = shape_of(folder)
            # The counted ones exclude biases and the norms of queries and keys.
            counted = shape_of_config(json.loads((folder / "config.json").read_bytes()))
            assert counted.parameters == pytest.approx(shape.parameters, rel=0.01)
            assert shape.file_bytes == pytest.approx(4 * shape.parameters, rel=0.01)
            assert (shape.heads, shape.kv_heads, shape.head_dim) == (4, 2, 64)


def kept_by_torch(model, body, autocast: bool) -> int:
    """Return the bytes of activations that autograd keeps in a pass through `body`."""
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


def kept_by_arithmetic(config, precision: Precision, fit: TrainingFit = PLAIN) -> int:
    shape = shape_of_config(config.to_dict())
    casts = precision.narrow * shape.matrices if precision.is_mixed else 0
    return pass_bytes(shape, precision, fit, rows=2, length=384, casts=casts)


def test_pass(subtests):
    cases = [("llama", FULL), ("qwen3", AUTOCAST), ("gemma2", HALF), ("olmo2", AUTOCAST)]
    for kind, precision in cases:
        with subtests.test(kind=kind, precision=precision):
            config = AutoConfig.for_model(kind, **SIZES)
            dtype = torch.float32 if precision.wide > 2 else torch.bfloat16
            model = AutoModelForCausalLM.from_config(config, dtype=dtype).train()
            seen = kept_by_torch(model, model.model, precision is not FULL)
            assert kept_by_arithmetic(config, precision) == pytest.approx(seen, rel=0.05)


def test_pass_with_adapters(subtests):
    for kind, precision in (("llama", FULL), ("qwen3", AUTOCAST), ("llama", HALF)):
        with subtests.test(kind=kind, precision=precision):
            config = AutoConfig.for_model(kind, **SIZES)
            dtype = torch.float32 if precision.wide > 2 else torch.bfloat16
            made = AutoModelForCausalLM.from_config(config, dtype=dtype).train()
            model = get_peft_model(made, LoraConfig(r=16, target_modules="all-linear"))
            model.enable_input_require_grads()
            trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
            lora = LoRASettings(r=16)
            assert trained == adapter_parameters(shape_of_config(config.to_dict()), lora)
            seen = kept_by_torch(model, model.base_model.model.model, precision is not FULL)
            kept = kept_by_arithmetic(config, precision, TrainingFit(lora=lora))
            assert kept == pytest.approx(seen, rel=0.05)
