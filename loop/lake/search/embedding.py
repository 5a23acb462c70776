# pyright: basic
"""The embedder of the search index, and whether it is still the one that made its vectors."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from ....configs.schema import ConfigError, EmbedderConfig, EngineConfig, RunConfig
from ....policies.engines.engine import EngineError
from ....policies.workers.identity import is_url, model_digest
from ....policies.workers.open import open_embedder
from ....stores.index import IndexUnusableError, Vectors
from ...run.models import located

LOG = "embedder.log"
FLOAT = 4

Embed = Callable[[Sequence[str]], pa.Array]
"""Return one vector for each text, as a fixed-size list."""


def configured(config: RunConfig) -> Vectors:
    """Return the configured embedder; its vectors' length is known only once it is open.

    Raises:
        ConfigError: if none is configured, or its model is missing.
    """
    wanted = config.index.embedder
    if wanted.kind == "none":
        raise ConfigError(
            "index.embedder.kind is none, so there are no vectors; "
            "choose one, with --set index.embedder.kind=policy"
        )
    model = _place(wanted, config)
    try:
        identity = _identity(wanted.kind, model, wanted.model_name)
    except EngineError as error:
        raise ConfigError(f"index.embedder: {error}") from error
    return Vectors(
        kind=wanted.kind,
        model=model,
        model_name=wanted.model_name,
        identity=identity,
        max_tokens=wanted.max_tokens,
        dims=0,
    )


@contextmanager
def opened(vectors: Vectors, folder: Path) -> Generator[Embed]:
    """Open an embedder; it logs in the index's folder.

    Raises:
        ConfigError: if it cannot be opened here.
    """
    made: dict[str, Any] = {"kind": vectors.kind, "max_tokens": vectors.max_tokens}
    named = {"model": vectors.model, "model_name": vectors.model_name}
    config = EmbedderConfig.model_validate({**made, **named})
    try:
        embedder = open_embedder(vectors.model, config, log=folder / LOG)
    except EngineError as error:
        raise ConfigError(f"index.embedder: {error}") from error
    try:
        yield lambda texts: _as_arrow(embedder.embed(texts))
    finally:
        embedder.close()


def check_unchanged(vectors: Vectors, folder: Path) -> None:
    """Require that the embedder of an index's vectors is still the same.

    Raises:
        IndexUnusableError: if it is missing or has changed.
    """
    try:
        there = _identity(vectors.kind, vectors.model, vectors.model_name)
        said = None if there == vectors.identity else f"{vectors.model} now holds another model"
    except EngineError as error:
        said = str(error)
    if said is not None:
        raise IndexUnusableError(
            f"the embedder of the search index {folder} cannot be used: {said}; "
            "`lpfloop lake reindex --full --embed` makes them anew"
        )


def _place(wanted: EmbedderConfig, config: RunConfig) -> str:
    """Return the folder or URL of the configured embedder."""
    if wanted.model is not None:
        return located(wanted.model)
    if wanted.kind != "policy":
        kind = "an endpoint's URL" if wanted.kind == "endpoint" else "a model's folder"
        raise ConfigError(f"index.embedder.model is missing: {wanted.kind} needs {kind}")
    model = located(config.policy.model)
    if is_url(model):
        raise ConfigError(
            f"the policy runs at {model}, which does not give hidden states: set "
            "index.embedder.kind=endpoint with index.embedder.model=URL, or a model's folder"
        )
    return str(Path(model).absolute())


def _identity(kind: str, model: str, model_name: str | None) -> str:
    """Return a hash of the weights, or the name that an endpoint gives its model."""
    if kind != "endpoint":
        return model_digest(model, EngineConfig())
    from ....policies.endpoint.endpoint import addresses, api_key, probe

    settings = EngineConfig()
    (url,) = addresses(model, settings)
    return probe(url, api_key(settings), model_name)


def _as_arrow(vectors: Sequence[bytes]) -> pa.Array:
    size = len(vectors[0]) // FLOAT
    values = pa.Array.from_buffers(
        pa.float32(), len(vectors) * size, [None, pa.py_buffer(b"".join(vectors))]
    )
    return pa.FixedSizeListArray.from_arrays(values, size)
