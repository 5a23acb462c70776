"""What a user may add to the requests to an endpoint: fields that lpfloop does not set itself."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, JsonValue

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
