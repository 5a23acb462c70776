# pyright: basic
"""Low-rank adapters: put onto a frozen model, merged into it when they are trained.

A low-rank layer computes W x + (alpha / r) B A x: W is frozen, A and B are trained in float32, and
B begins at 0, so that the training begins with the model as it is. Merging adds (alpha / r) B A to
W in float32, also if W was quantised while it was trained (QLoRA): all its bits are published.
"""

import json
from pathlib import Path
from typing import Any, Literal

import torch
from peft import LoraConfig, PeftModel
from peft.tuners.lora import LoraLayer
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    BitsAndBytesConfig,
)

from ...stores.keys import derive_seed
from ..devices import cpu_type
from .job import TrainJob
from .rounding import rounded_at_random
from .training_fit import TrainingFit

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
SETS = ("modules_to_save", "target_modules")
"""The fields that peft keeps as sets, whose order differs from process to process."""


def published_type(job: TrainJob) -> torch.dtype:
    """Return the type of the published weights: a policy's is the one in which it is sampled."""
    if job.method == "reward" and not job.fit.adapts:
        return torch.float32
    if job.fit.publish != "auto":
        return getattr(torch, job.fit.publish)
    return torch.bfloat16 if torch.cuda.is_available() else torch.float32


def computing_type(job: TrainJob) -> torch.dtype:
    """Return the type of matrix products: bfloat16 on a GPU.

    On a CPU it is bfloat16 if the CPU multiplies it and the model is published in it.
    """
    narrow = cpu_type() == "bfloat16" and published_type(job) == torch.bfloat16
    return torch.bfloat16 if torch.cuda.is_available() or narrow else torch.float32


def peft_config(fit: TrainingFit, task: Literal["CAUSAL_LM", "SEQ_CLS"]) -> LoraConfig | None:
    """Return peft's configuration of the adapters; None if all weights are trained.

    A reward model's head gets no adapter: peft trains the whole head.
    """
    lora = fit.lora
    if not fit.adapts:
        return None
    alpha: Any = lora.alpha  # peft computes with any number
    return LoraConfig(
        r=lora.r,
        lora_alpha=alpha,
        lora_dropout=lora.dropout,
        target_modules=lora.targets if isinstance(lora.targets, str) else list(lora.targets),
        task_type=task,
    )


def frozen_arguments(job: TrainJob) -> dict[str, Any]:
    """Return the arguments of `from_pretrained` for the frozen weights below adapters."""
    dtype = computing_type(job)
    if job.fit.lora.quantise == "none":
        return {"dtype": dtype}
    quantisation = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type=job.fit.lora.quantise,
        bnb_4bit_compute_dtype=dtype,
        bnb_4bit_use_double_quant=True,
    )
    return {
        "dtype": dtype,
        "quantization_config": quantisation,
        "device_map": {"": torch.cuda.current_device()},
    }


def widen_adapters(model: Any) -> None:
    """Make the adapters float32: TRL makes a quantised model's adapters bfloat16."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()


def save_config(model: Any, saved: Path) -> None:
    """Save the configuration of the model below the adapters with them."""
    model.get_base_model().config.save_pretrained(saved)


def with_adapter(base: Any, adapter: Path) -> Any:
    """Return `base` with the adapters in a folder, not merged, in float32."""
    return PeftModel.from_pretrained(base, adapter)


def merge_adapter(job: TrainJob, saved: Path) -> Path:
    """Merge the saved adapters into the model they were trained on; return its folder.

    The sum of weights and adapters is rounded at random to the published type.
    """
    kind = AutoModelForSequenceClassification if job.method == "reward" else AutoModelForCausalLM
    config: Any = AutoConfig.from_pretrained(saved)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    arguments = {"dtype": "auto", "config": config, "trust_remote_code": False}
    base = kind.from_pretrained(job.model, local_files_only=True, use_safetensors=True, **arguments)
    published, whole = published_type(job), saved / "merged"
    adapted = with_adapter(base, saved)
    with torch.inference_mode():
        for path, layer in adapted.named_modules():
            if isinstance(layer, LoraLayer):
                _merge_into(layer, published, derive_seed(job.seed, "publish", path))
        # Without `merge`: peft would add in the type of the base.
        adapted.unload().to(published).save_pretrained(whole)
    return whole


def _merge_into(layer: Any, published: torch.dtype, seed: int) -> None:
    """Add the product of a layer's adapters to its weights in float32, and round the sum."""
    weight: Any = layer.get_base_layer().weight
    (name,) = layer.active_adapters
    change = layer.get_delta_weight(name).float()
    weight.data = rounded_at_random(weight.data.float() + change, published, seed)


def keep_adapter(saved: Path, base: str, folder: Path) -> None:
    """Move the adapters into their own folder, the same bytes after the same training.

    `base` names the model that they belong to.
    """
    folder.mkdir()
    (saved / WEIGHTS).rename(folder / WEIGHTS)
    config = json.loads((saved / CONFIG).read_text())
    config |= {name: sorted(config[name]) for name in SETS if isinstance(config[name], list)}
    config["base_model_name_or_path"] = base
    (folder / CONFIG).write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
