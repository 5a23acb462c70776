"""The engine of a language model, its sampling, and models by name."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    JsonValue,
    SecretStr,
)

from .section import (
    AutoCount,
    Devices,
    Place,
    Section,
    WorkerPlace,
    cosmetic,
    is_count,
    live,
    or_auto,
    semantic,
)

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]

OWN_FIELDS = frozenset(
    {
        "logit_bias",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "model",
        "n",
        "reasoning_effort",
        "seed",
        "stop",
        "stream",
        "temperature",
        "top_p",
    }
)
"""Fields of a request that lpfloop sets, or that it needs to read the answer."""
SECRET_FIELDS = frozenset(
    {"access_token", "api_key", "apikey", "auth", "authorization", "password", "secret", "token"}
)


def _only_more(body: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Refuse lpfloop's own fields, and names that look like a key: the configuration is stored."""
    for name in body:
        if name.lower() in OWN_FIELDS:
            raise ValueError(f"{name!r} is a field that lpfloop sets itself; use its setting")
    for name in _names_in(body):
        if name.lower().replace("-", "_") in SECRET_FIELDS:
            raise ValueError(f"{name!r} must not be stored here; set LPFLOOP_API_KEY instead")
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


StopString = Annotated[str, Field(min_length=1, max_length=200)]


def _scalar(value: object) -> object:
    if not isinstance(value, bool | int | float | str):
        raise ValueError("must be a text, a number, true or false")  # noqa: TRY004 -- pydantic's
    return value


def _is_context(value: object) -> bool:
    return value is None or is_count(value, SHORTEST)


SHORTEST = 16
Scalar = Annotated[bool | int | float | str, BeforeValidator(_scalar)]
Context = Annotated[
    int | Literal["auto"] | None, or_auto(_is_context, f"a number of tokens from {SHORTEST} on")
]
"""A context length in tokens, `auto` for what fits into memory, or None for the model's own."""

NO_MODEL = "none"
"""The name of a model without a configured name."""

TINY = "tiny"
"""The preset world that runs on a laptop, and the name of its models and prompts."""


class SamplingConfig(Section):
    """How completions are drawn."""

    temperature: float = semantic(1.0, "0 is greedy", ge=0, le=5)
    top_p: float = semantic(1.0, "nucleus mass", gt=0, le=1)
    max_tokens: int = semantic(
        256, "bound on the completion, in tokens; a model's thought is part of it", ge=1
    )
    top_k: int | None = semantic(
        None, "how many tokens, the most probable, may be drawn; default: all", ge=1
    )
    min_p: float | None = semantic(
        None, "least probability of a token, as a share of the most probable one's", gt=0, le=1
    )
    repetition_penalty: float | None = semantic(
        None, "above 1: makes tokens of prompt and answer less probable", gt=0, le=2
    )
    stop: tuple[StopString, ...] = semantic(
        (), "texts that end an answer and are cut off", max_length=8
    )


WHOLE: Mapping[str, Any] = {
    "top_p": 1.0,
    "top_k": None,
    "min_p": None,
    "repetition_penalty": None,
    "stop": (),
}
"""Sampling from the whole distribution, as measurements of a model's probabilities do."""


class VLLMConfig(Section):
    """Arguments of vLLM's engine, only for vLLM on this machine."""

    max_num_seqs: int | None = cosmetic(None, "requests that run at once", ge=1)
    max_num_batched_tokens: int | None = cosmetic(None, "tokens of one step", ge=16)
    quantization: Literal["fp8", "fp8_per_block", "int8_per_channel_weight_only"] | None = semantic(
        None, "how weights are quantised while they load; default: not"
    )
    kv_cache_dtype: Literal["auto", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2"] = semantic(
        "auto", "type of the KV cache; auto: the weights' own"
    )
    enforce_eager: bool | None = cosmetic(
        None, "no compiled graphs: starts sooner, samples more slowly; default: true on a CPU"
    )


class EngineConfig(Section):
    """The engine of a language model, and its place."""

    kind: Literal["auto", "vllm", "transformers", "openai", "scripted"] = semantic(
        "auto", "auto: openai for a URL, else vllm if installed, else transformers"
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = semantic(
        "auto",
        "weights' type; auto: the model's own, on a CPU bfloat16 if it multiplies it, or float32",
    )
    max_model_len: Context = semantic(
        None,
        "context length, in tokens; default: the model's own; auto: vLLM fits it into memory",
    )
    model_name: str | None = semantic(None, "model name at the endpoint; default: its only model")
    template: Place | None = semantic(
        None,
        "prompt form of a local model, such as a base model without a chat template: alpaca, or a "
        ".jinja file",
    )
    chat_template_kwargs: dict[str, Scalar] = semantic(
        {}, "values for the model's chat template, such as {enable_thinking: false}"
    )
    think_tags: tuple[StopString, StopString] | None = semantic(
        None, "tags around a model's thought; default: found in its files"
    )
    extra_body: ExtraBody = semantic(
        {}, "fields that are added to each request to an endpoint, such as {service_tier: flex}"
    )
    reasoning_effort: ReasoningEffort | None = semantic(
        None, "how much a model at an endpoint reasons before it answers; default: its own"
    )
    reasoning_tokens: int = semantic(
        0, "tokens that each request may draw beyond its max_tokens, for a model that reasons", ge=0
    )
    script: str | None = semantic(None, "scripted engine: dotted path of a function of a request")
    base_urls: tuple[Place, ...] = cosmetic(
        (), "OpenAI-compatible endpoints of one model, with /v1, that share its requests"
    )
    api_key: SecretStr | None = cosmetic(None, "key of the endpoints; or set LPFLOOP_API_KEY")
    concurrency: int = live(64, "requests in flight at each endpoint", ge=1)
    requests_per_minute: int | None = live(
        None, "most requests to each endpoint in any minute; default: as many as it takes", ge=1
    )
    tokens_per_minute: int | None = live(
        None,
        "most tokens, of prompts and answers, to and from each endpoint in any minute",
        ge=1,
    )
    batch: bool = cosmetic(
        default=False,
        description="ask an endpoint by batch files, which cost less and may take it a day",
    )
    batch_least: int = live(
        100,
        "fewest requests of a batch file; smaller groups are sent directly, at the full price",
        ge=1,
    )
    batch_most: int = live(50_000, "most requests of a batch file", ge=1, le=50_000)
    batch_poll_s: float = live(
        60.0, "seconds from one look at a running batch to the next, at most an hour", gt=0, le=3600
    )
    timeout_s: float = live(120.0, "deadline of one request to an endpoint, in seconds", gt=0)
    retry_timeout_s: float = live(
        86_400.0, "how long endpoints may answer nothing before the run stops, in seconds", gt=0
    )
    hang_timeout_s: float = live(
        900.0, "seconds without a result after which a worker counts as hung", gt=0
    )
    restarts: int = cosmetic(3, "restarts of a worker in a row", ge=0)
    memory_utilization: float = cosmetic(0.9, "share of a GPU's memory that vLLM takes", gt=0, le=1)
    kv_cache_gib: int = cosmetic(1, "vLLM's cache on a CPU, in GiB", ge=1)
    cpu_threads: int | None = cosmetic(
        None, "threads on a CPU; with 1, results do not depend on what else is in flight", ge=1
    )
    place: WorkerPlace = live("local", "where its workers are: local, or ray (a cluster)")
    devices: Devices = cosmetic(
        "auto", "GPUs of this machine that it runs on, by number, such as [0, 1]; auto: all visible"
    )
    tensor_parallel: int = cosmetic(1, "GPUs that one model spans", ge=1)
    replicas: AutoCount = live(
        "auto",
        "copies of the model that share its work; auto: devices / tensor_parallel",
    )
    vllm: VLLMConfig = VLLMConfig()

    @property
    def context(self) -> int | None:
        """The context length, if a number is configured."""
        return None if self.max_model_len == "auto" else self.max_model_len

    @property
    def extra_fields(self) -> dict[str, JsonValue]:
        """The fields that are added to the body of each request to an endpoint."""
        effort = self.reasoning_effort
        return {**self.extra_body, **({} if effort is None else {"reasoning_effort": effort})}


MODELS = "models"
"""The key of the map in a file."""
ANY_NAME = "NAME"
"""Stands for the name of a model in paths of fields: `models.NAME.engine.dtype`."""


class ModelConfig(Section):
    """A model that roles refer to by its name in `models`.

    A setting of such a role's engine (`policy.engine.dtype`) is a setting of its model, so it
    applies to every role that names the model.
    """

    location: Place | None = semantic(
        None, "a shipped name, a folder, or an OpenAI-compatible URL; default: the model's name"
    )
    engine: EngineConfig = EngineConfig()


class ModelsByName(Section):
    """The part of a file that names models."""

    models: dict[str, ModelConfig] = Field(
        {}, description="models by name; the `model` of a role is one of them, or a location"
    )
