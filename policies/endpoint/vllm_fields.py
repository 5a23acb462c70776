"""Fields of a request that only vLLM's server understands, and the refusal of all others."""

from collections.abc import Mapping
from typing import Any

from ...configs.engines import EngineConfig
from ..engines.engine import EngineError, Sampling
from .endpoint import ServedModel

NEUTRAL: Mapping[str, Any] = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
"""What vLLM's server would otherwise take from the model's own generation_config.json."""


def vllm_fields(
    served: ServedModel, url: str, sampling: Sampling, config: EngineConfig
) -> dict[str, Any]:
    """Return what is sent to vLLM's server besides the fields that all servers know.

    Raises:
        EngineError: if something of it is asked for and the server is another.
    """
    asked = {name: getattr(sampling, name) for name in NEUTRAL}
    fields = {f"sampling.{name}": value for name, value in asked.items() if value is not None}
    if config.chat_template_kwargs:
        fields["engine.chat_template_kwargs"] = dict(config.chat_template_kwargs)
    if fields and not served.by_vllm:
        raise EngineError(
            f"{url}: {', '.join(fields)}: only vLLM's server is known to understand this, and this "
            "one does not say that it is vLLM's; leave it out, or add it by engine.extra_body"
        )
    if not served.by_vllm:
        return {}
    named = {name.rpartition(".")[2]: value for name, value in fields.items()}
    return {**NEUTRAL, **named}
