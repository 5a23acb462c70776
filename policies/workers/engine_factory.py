"""Opens the engine or scorer that is configured, in the process where it belongs.

Models run in separate processes. Endpoints and scripts hold no model in memory and run in the
calling process.
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from ...configs.own_function import names_function
from ...configs.schema import EngineConfig, RewardConfig
from ...stores.installation import vllm_command
from ..devices import driver_gpus
from ..engines.engine import Engine, EngineError, Scorer
from ..engines.vllm_engine import refuse_vllm
from .hosted_model import Config, HostedModel
from .identity import check_folder, is_url, scorer_digest
from .model_process import ChildProcess, ModelProcess, Opening
from .places import DeviceGroup, Placement, placements
from .ray_cluster import ray_request


def engine_kind(model: str, config: EngineConfig) -> str:
    """Return the kind of engine of a model: for `auto` openai for a URL, else vllm or transformers.

    Raises:
        EngineError: when no installed library can run it.
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
"""The folder, next to the logs, with the records of sent batch files."""

Fit = Callable[[EngineConfig, DeviceGroup], EngineConfig]
"""Fits an engine to the GPUs of one of its replicas."""


def as_it_is(config: EngineConfig, _: DeviceGroup) -> EngineConfig:
    """Return the configuration unchanged, for any GPUs."""
    return config


def open_engine(
    model: str,
    config: EngineConfig,
    *,
    log: Path,
    fit: Fit = as_it_is,
) -> Engine:
    """Open an engine; a model in a folder starts to load at once in a process that logs to `log`.

    Each of several replicas has a process, fitted to its GPUs, and a separate log next to `log`.

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

    def opening(model: str, config: EngineConfig, group: DeviceGroup) -> Opening:
        # A local model does not need an endpoint's key.
        fitted = fit(config, group).model_copy(update={"api_key": None})
        return Opening(kind=kind, model=model, config=fitted)

    return _host(opening, model, config, placements, log)


def open_scorer(
    model: str | Path,
    config: RewardConfig,
    *,
    log: Path,
    identity: str | None = None,
) -> Scorer:
    """Open a reward model, or the user's own function, in processes that print to `log`.

    `identity` is the function's required identity; default: its present one.

    Raises:
        ConfigError: for devices or replicas that the machine cannot follow.
        EngineError: when the folder does not hold a model.
    """
    place, kind = str(model), "reward"
    function = None
    if names_function(place):
        kind, function = "function", identity or scorer_digest(place)
    else:
        check_folder(Path(model))

    def opening(model: str, config: RewardConfig, _: DeviceGroup) -> Opening:
        return Opening(kind=kind, model=model, config=config, function=function)

    placed = partial(placements, function=function is not None)
    return _host(opening, place, config, placed, log)


def _host(
    opened: Callable[[str, Config, DeviceGroup], Opening],
    model: str,
    config: Config,
    placed: Callable[[Config], Sequence[Placement]],
    log: Path,
) -> HostedModel[Config]:
    """Open a model in processes; each on this machine prints to a separate log.

    The process of a single replica prints to `log` itself.
    """
    only = len(placed(config)) == 1

    def start(
        number: int, placement: Placement, model: str, config: Config, wake: threading.Event
    ) -> ModelProcess:
        opening = opened(model, config, placement.group)
        if placement.place == "local":
            own = log if only and not number else log.with_stem(f"{log.stem}-{number + 1}")
            return ChildProcess(opening, wake, log=own, devices=placement.group)
        request = ray_request(config)
        # It imports Ray, which is installed if this point is reached.
        from .ray_process import RayProcess

        return RayProcess(opening, wake, request)

    return HostedModel(start, model, config, placed)
