"""What runs a language model, and how completions are drawn from it."""

import json
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, JsonValue, SecretStr

from .section import Place, Section, cosmetic, live, semantic

NO_MODEL = "none"
"""The name of a model that nobody named."""


OWN_FIELDS = frozenset(
    {
        "logit_bias",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "min_p",
        "model",
        "n",
        "reasoning_effort",
        "repetition_penalty",
        "seed",
        "stop",
        "stream",
        "temperature",
        "top_k",
        "top_p",
    }
)
"""Fields of a request that lpfloop sets, or on which its reading of the answer relies."""
SECRET_FIELDS = frozenset(
    {"access_token", "api_key", "apikey", "auth", "authorization", "password", "secret", "token"}
)


def _only_more(body: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Refuse fields of lpfloop's own, and what looks like a key: the configuration is stored."""
    for name in body:
        if name.lower() in OWN_FIELDS:
            raise ValueError(f"{name!r} is a field that lpfloop sets itself; use its setting")
    for name in _names_in(body):
        if name.lower().replace("-", "_") in SECRET_FIELDS:
            raise ValueError(f"{name!r} must not be stored here; set LPFLOOP_API_KEY instead")
    try:
        json.dumps(body, allow_nan=False)
    except ValueError:
        raise ValueError("a number in it is not one that JSON knows") from None
    return body


def _names_in(value: JsonValue) -> Iterator[str]:
    """Yield the names of all fields, at any depth."""
    if isinstance(value, list):
        for item in value:
            yield from _names_in(item)
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from _names_in(inner)


ExtraBody = Annotated[dict[str, JsonValue], AfterValidator(_only_more)]


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
    extra_body: ExtraBody = semantic(
        {}, "fields that are added to each request to an endpoint, such as {service_tier: flex}"
    )
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = (
        semantic(
            None, "how much a model at an endpoint reasons before it answers; default: its own"
        )
    )
    reasoning_tokens: int = semantic(
        0, "tokens that each request may draw beyond its max_tokens, for a model that reasons", ge=0
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

    @property
    def besides(self) -> dict[str, JsonValue]:
        """What is added to the body of each request to an endpoint."""
        effort = self.reasoning_effort
        return {**self.extra_body, **({} if effort is None else {"reasoning_effort": effort})}
