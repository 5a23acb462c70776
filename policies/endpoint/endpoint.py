"""Endpoints that speak OpenAI's protocol: addresses, API key, and the models they serve."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from ...configs.schema import EngineConfig
from ...configs.secrecy import hide_key
from ..devices import ANSWER_S
from ..engines.engine import EngineError
from .faults import (
    ATTEMPT_ERRORS,
    KEY_VARIABLE,
    RefusedError,
    TemporaryError,
    fault_of,
    shorten,
)
from .transport import Connections, reading


def addresses(model: str, config: EngineConfig) -> tuple[str, ...]:
    """Return the endpoints' base URLs; one without a path gets `/v1`.

    Raises:
        EngineError: when no address is given, or one is not an http(s) URL.
    """
    return tuple(_base_url(url) for url in config.base_urls or (model,))


def _base_url(url: str) -> str:
    refused = EngineError(
        f"{url!r} is not an endpoint; give an address such as http://127.0.0.1:8000/v1"
    )
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # an invalid port or IPv6 address
        raise refused from None
    if not usable:
        raise refused
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") or "/v1"))


def api_key(config: EngineConfig) -> str | None:
    """Return the configured key, or the environment's, without white space around it.

    From now on it is blacked out in everything that is stored or shown.

    Raises:
        EngineError: when an HTTP header cannot carry it: the client's own error would show it.
    """
    own = config.api_key
    key = os.environ.get(KEY_VARIABLE) if own is None else own.get_secret_value()
    key = (key or "").strip()
    if not (key.isascii() and key.isprintable()):
        raise EngineError(
            f"the API key contains characters that no key can have; set {KEY_VARIABLE} again"
        )
    hide_key(key)
    return key or None


@dataclass(frozen=True, slots=True)
class ServedModel:
    """The model an endpoint serves, and whether the endpoint is vLLM's server.

    `max_model_len` is its context in tokens, if the endpoint reports it.
    """

    name: str
    by_vllm: bool
    max_model_len: int | None = None


def same_model(known: ServedModel, url: str, found: ServedModel) -> ServedModel:
    """Return the model that an endpoint serves, if it is the same as at the other endpoints.

    Raises:
        EngineError: if its name or its context length differs.
    """
    if found.name != known.name:
        raise EngineError(
            f"{url}: serves {found.name!r}, and another of engine.base_urls serves "
            f"{known.name!r}: list endpoints of one model, or set engine.model_name"
        )
    lengths = (known.max_model_len, found.max_model_len)
    if None not in lengths and len(set(lengths)) > 1:
        raise EngineError(
            f"{url}: serves {found.name!r} with a context of {found.max_model_len} tokens, and "
            f"another of engine.base_urls with {known.max_model_len}: give all of them one length"
        )
    return found


def name_served(model: str, config: EngineConfig) -> str:
    """Return the name of the model that the configured endpoints serve.

    It is the configured name, or else the only model of the first endpoint that answers.

    Raises:
        EngineError: when none answers, or the first that answers serves several.
    """
    urls, key = addresses(model, config), api_key(config)
    return config.model_name or asyncio.run(_first_name(urls, key))


async def _first_name(urls: Sequence[str], key: str | None) -> str:
    probes = (_probe(url, key, None) for url in urls)
    found = await asyncio.gather(*probes, return_exceptions=True)
    served = next((one for one in found if not isinstance(one, EngineError)), found[0])
    if isinstance(served, BaseException):
        raise served
    return served.name


def probe(base_url: str, key: str | None, model_name: str | None = None) -> str:
    """Request the model that an endpoint serves; return its name.

    Raises: EngineError: naming the URL and the cause, when it does not answer, refuses the key,
    does not serve `model_name`, or serves several models and `model_name` is None.
    """
    return asyncio.run(_probe(base_url, key, model_name)).name


async def _probe(base_url: str, key: str | None, model_name: str | None) -> ServedModel:
    connections = Connections(base_url, key)
    try:
        async with asyncio.timeout(ANSWER_S):
            return await ask(connections, model_name)
    except ATTEMPT_ERRORS as error:
        fault = fault_of(base_url, error, key)
    finally:
        await connections.aclose()
    if isinstance(fault, TemporaryError | RefusedError):
        raise EngineError(f"{base_url}: {fault}")
    raise fault


async def ask(connections: Connections, model_name: str | None) -> ServedModel:
    """Request the model that an endpoint serves, and the kind of its server.

    Raises:
        EngineError: when `model_name` is not served, or is None and several are served.
        StatusError, AnswerTooLargeError, ClientError, OSError: when it does not answer.
        UnreadableReplyError: when the reply is not a list of models.
    """
    listed: Any = await connections.get("models")
    with reading(listed):
        models: dict[str, dict[str, Any]] = {model["id"]: model for model in _entries(listed)}
    names = list(models)
    url = connections.url
    served = shorten(", ".join(names[:8]) or "none", connections.key)
    chosen = model_name or (names[0] if len(names) == 1 else None)
    if chosen is None:
        raise EngineError(f"{url}: which model? it serves {served}; set engine.model_name")
    if names and chosen not in names:
        raise EngineError(f"{url}: does not serve {chosen!r}, but {served}")
    own = models.get(chosen, {})
    longest = own.get("max_model_len")
    return ServedModel(
        chosen,
        by_vllm=own.get("owned_by") == "vllm",
        max_model_len=longest if isinstance(longest, int) else None,
    )


def _entries(listed: Any) -> list[dict[str, Any]]:
    """Return the models of a list; raise TypeError or LookupError if it is malformed."""
    models = listed["data"]
    if not all(isinstance(model["id"], str) for model in models):
        raise TypeError
    return models
