"""The arguments of vLLM's engine that a configuration means; what cannot work is refused."""

from typing import Any

from ...configs.engines import EngineConfig
from ..devices import cpu_type
from .engine import EngineError, UnloadableError

PIECES = (
    "engine.vllm.enable_chunked_prefill: vLLM's CPU build fails where a prompt is read in pieces "
    "and its answer has a seed, as every request here has; leave it out"
)


def engine_arguments(model: str, config: EngineConfig, *, on_cpu: bool) -> dict[str, Any]:
    """Return the arguments of `vllm.LLM` for a model under a configuration.

    On a CPU: eager mode, `cpu_type` unless a type is configured, and no chunked prefill.

    Raises:
        UnloadableError: for chunked prefill on a CPU.
    """
    arguments: dict[str, Any] = {
        "model": model,
        "dtype": cpu_type() if on_cpu and config.dtype == "auto" else config.dtype,
        "max_model_len": -1 if config.max_model_len == "auto" else config.max_model_len,
        "generation_config": "vllm",
        # Else vLLM prefers Mistral's own copies of weights, settings and tokenizer where they lie
        # beside those that every other loader here reads.
        "load_format": "safetensors",
        "config_format": "hf",
        "tokenizer_mode": "hf",
        "trust_remote_code": False,
        "enable_prefix_caching": True,
        "tensor_parallel_size": config.tensor_parallel,
        "logprobs_mode": "raw_logprobs",
        "seed": 0,
    }
    if on_cpu and config.vllm.enable_chunked_prefill:
        raise UnloadableError(PIECES)
    if on_cpu:
        arguments |= {"enforce_eager": True, "enable_chunked_prefill": False}
    else:
        arguments |= {"gpu_memory_utilization": config.memory_utilization}
    said = config.vllm.model_dump(mode="json", exclude_none=True)
    return arguments | said


def refuse_vllm(config: EngineConfig, kind: str) -> None:
    """Refuse settings of vLLM that another engine would have to heed, too.

    Raises:
        EngineError: naming the first of them.
    """
    if kind == "vllm":
        return
    if config.max_model_len == "auto":
        raise EngineError(f"engine.max_model_len: auto is vLLM's; the {kind} engine needs a number")
    for name in ("quantization", "kv_cache_dtype"):
        if name in config.vllm.model_dump():
            raise EngineError(
                f"engine.vllm.{name}: the {kind} engine has no such setting; leave it out, or set "
                "engine.kind to vllm"
            )
