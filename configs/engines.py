"""What runs a language model, and how completions are drawn from it."""

from typing import Literal

from pydantic import SecretStr

from .section import Place, Section, cosmetic, live, semantic

NO_MODEL = "none"
"""The name of a model that nobody named."""


class SamplingConfig(Section):
    """Temperature, nucleus and length of completions."""

    temperature: float = semantic(1.0, "0 is greedy", ge=0, le=5)
    top_p: float = semantic(1.0, "nucleus mass", gt=0, le=1)
    max_tokens: int = semantic(256, "bound on the completion, in tokens", ge=1)


class EngineConfig(Section):
    """What runs a language model, and where."""

    kind: Literal["auto", "vllm", "transformers", "openai", "scripted"] = semantic(
        "auto", "auto: openai for a URL, else vllm if installed, else transformers"
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = semantic(
        "auto", "weights' type; auto: the model's own, on a CPU float32"
    )
    max_model_len: int | None = semantic(
        None, "context length, in tokens; default: the model's own", ge=16
    )
    model_name: str | None = semantic(None, "model name at the endpoint; default: its only model")
    template: Place | None = semantic(
        None,
        "prompt form of a local model, such as a base model without a chat template: alpaca, or a "
        ".jinja file",
    )
    script: str | None = semantic(None, "scripted engine: dotted path of a function of a request")
    base_urls: tuple[Place, ...] = cosmetic(
        (), "OpenAI-compatible endpoints, with /v1, used in turn"
    )
    api_key: SecretStr | None = cosmetic(None, "key of the endpoints; or set LPFLOOP_API_KEY")
    concurrency: int = live(64, "requests in flight at endpoints", ge=1)
    timeout_s: float = live(120.0, "deadline of one request to an endpoint, in seconds", gt=0)
    patience_s: float = live(
        86_400.0, "how long endpoints may keep one request waiting in total, in seconds", gt=0
    )
    stall_s: float = live(
        900.0, "seconds without a result after which a worker counts as hung", gt=0
    )
    restarts: int = cosmetic(3, "restarts of a worker in a row", ge=0)
    memory_utilization: float = cosmetic(0.9, "share of a GPU's memory that vLLM takes", gt=0, le=1)
    kv_cache_gib: int = cosmetic(1, "vLLM's cache on a CPU, in GiB", ge=1)
    cpu_threads: int | None = cosmetic(
        None, "threads on a CPU; with 1, results do not depend on what else is in flight", ge=1
    )
    tensor_parallel: int = cosmetic(1, "GPUs that one model spans", ge=1)
