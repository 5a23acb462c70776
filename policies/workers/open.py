"""Opens the engine, scorer or embedder that is configured, in the process where it belongs.

Models run in worker processes. Endpoints and scripts hold no model in memory and run in the calling
process.
"""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from ...configs.own_function import names_function
from ...configs.schema import EmbedderConfig, EngineConfig, RewardConfig
from ...stores.installation import pip_install, vllm_command
from ..devices import driver_gpus
from ..engines.engine import Embedder, Engine, EngineError, Scorer
from ..engines.vllm_engine import refuse_vllm
from .identity import check_folder, is_url, scorer_digest
from .places import Berth, DeviceGroup, device_groups, engine_berths, scorer_berths
from .work import OWN_SCORE, SCORE
from .worker import Starter, child_workers


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
    install = vllm_command(on_gpu=bool(driver_gpus()))
    raise EngineError(f"nothing here can run {model}: install vLLM ({install}), or give a URL")


BATCHES = "batches"
"""The folder beside the logs that says which batch files were sent."""

Fit = Callable[[EngineConfig, DeviceGroup], EngineConfig]
"""Fits an engine to the GPUs of one of its replicas."""


def as_it_is(config: EngineConfig, _: DeviceGroup) -> EngineConfig:
    """Fit an engine to its GPUs by its configuration alone."""
    return config


def open_engine(
    model: str,
    config: EngineConfig,
    *,
    log: Path,
    fit: Fit = as_it_is,
) -> Engine:
    """Open an engine; a model in a folder starts to load at once, in a worker that prints to `log`.

    Of several replicas each has a worker, fitted to its GPUs, and a log of its own beside `log`.

    Raises:
        ConfigError: for devices or replicas that the machine cannot follow.
        EngineError: when the folder does not hold a model, or an address is not a URL.
    """
    kind = engine_kind(model, config)
    refuse_vllm(config, kind)
    if kind == "openai":
        from ..endpoint.batch_file_engine import BatchFileEngine
        from ..endpoint.openai_engine import OpenAIEngine

        if config.batch:
            return BatchFileEngine(model, config, folder=log.parent / BATCHES)
        return OpenAIEngine(model, config)
    if kind == "scripted":
        from ..engines.scripted_engine import ScriptedEngine

        return ScriptedEngine(config)
    check_folder(Path(model))
    from .pool import EnginePool
    from .worker_models import WorkerEngine

    berths = engine_berths(config)

    def replica(number: int, berth: Berth, model: str, config: EngineConfig) -> WorkerEngine:
        own, elsewhere = _log_of(log, number, len(berths)), berth.place != "local"
        fitted = config if elsewhere else fit(config, berth.group)
        start = _starter(berth, config, log=own)
        return WorkerEngine(kind, model, fitted, start=start, elsewhere=elsewhere)

    return EnginePool(replica, model, config, berths)


def open_scorer(
    model: str | Path,
    config: RewardConfig,
    *,
    log: Path,
    identity: str | None = None,
) -> Scorer:
    """Open a reward model, or the user's own function, in workers that print to `log`.

    `identity` is that of the function that is meant; default: as it is now.

    Raises:
        ConfigError: for devices or replicas that the machine cannot follow.
        EngineError: when the folder does not hold a model.
    """
    from .pool import ScorerPool
    from .worker_models import WorkerScorer

    place = str(model)
    function = (identity or scorer_digest(place)) if names_function(place) else None
    if function is None:
        check_folder(Path(model))

    def berths(config: RewardConfig) -> tuple[Berth, ...]:
        return scorer_berths(config, function=function is not None)

    count = len(berths(config))

    def replica(number: int, berth: Berth) -> WorkerScorer:
        own, elsewhere = _log_of(log, number, count), berth.place != "local"
        start = _starter(berth, config, log=own)
        return WorkerScorer(place, config, start=start, function=function, elsewhere=elsewhere)

    return ScorerPool(replica, SCORE if function is None else OWN_SCORE, berths, config)


def open_entailment(model: Path, config: RewardConfig, *, log: Path) -> Scorer:
    """Open a model of natural language inference, in a worker that prints to `log`.

    Raises:
        ConfigError: for devices that the machine cannot follow.
        EngineError: when the folder does not hold a model.
    """
    from .worker_models import WorkerScorer

    check_folder(model)
    (group,) = device_groups("facts.nli", config.devices, 1)
    start = child_workers(log=log, devices=group)
    return WorkerScorer(str(model), config, start=start, entails=True)


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
            f"{pip_install('sentence-transformers')}, or choose another kind"
        )
    check_folder(Path(model))
    from .worker_embedder import WorkerEmbedder

    return WorkerEmbedder(Path(model), config, log=log)


def _starter(berth: Berth, config: EngineConfig | RewardConfig, *, log: Path) -> Starter:
    """Return what starts the workers of a replica where it is."""
    if berth.place == "local":
        return child_workers(log=log, devices=berth.group)
    from .ray_cluster import ray_request

    request = ray_request(config)
    # It imports Ray, which is known to be there now.
    from .ray_channel import ray_workers

    return ray_workers(request)


def _log_of(log: Path, number: int, count: int) -> Path:
    """Return where a replica's worker prints to; the only one has the log to itself."""
    return log if count == 1 and not number else log.with_stem(f"{log.stem}-{number + 1}")
