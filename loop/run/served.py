"""A model and its engine settings, resolved from a folder, a hub name or a URL.

A hub name is looked up in the hub's cache once, when a command reads its configuration. From then
on the configuration holds the name with its commit, so a later commit does not change a run. A
folder of the same name takes precedence over the hub. `fetch` downloads, if a command line asks for
it.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from ...configs.load import semantic
from ...configs.methods import RewardTraining
from ...configs.mistakes import ConfigError
from ...configs.schema import EngineConfig
from ...configs.secrecy import redact
from ...configs.section import Section, leaves
from ...policies.engines.chat_template import require_chat
from ...policies.engines.engine import EngineError
from ...policies.workers.engine_factory import engine_kind
from ...policies.workers.identity import (
    check_folder,
    endpoint_digest,
    model_digest,
    same_form,
    saved_type,
    served_name,
)
from ...stores.hub_cache import (
    HubName,
    cache_folder,
    commit_of,
    dataset_name,
    model_name,
    snapshot,
)
from ...stores.installation import pip_install
from ...stores.keys import Json, digest
from ..smol.weights import prepared_folder
from .terminal import say

MODEL_FIELD = "model"
"""The name of the field for a model, in every section that has one."""

WEIGHTS = ("*.safetensors", "*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken")
NOT_WEIGHTS = ("*/*", "consolidated*")
"""Other formats' folders, and Mistral's second copy of the same weights."""
ROWS = ("*.parquet", "*.arrow", "*.jsonl", "*.ndjson", "*.json", "*.csv", "*.tsv")

S = TypeVar("S", bound=Section)

logger = logging.getLogger("lpfloop.models")


def hub_model(text: str) -> HubName | None:
    """Return the model of the hub that a text names; None if a folder of that name exists."""
    name = model_name(text)
    if name is None or not Path(text).exists():
        return name
    if snapshot(name) is not None:
        logger.warning("%s: taken to be the folder here, not the hub's model in the cache", text)
    return None


def folder_of(text: str) -> str:
    """Return the folder of a model that the hub's cache has, else the text, with `~` expanded."""
    if text.startswith("~"):
        return str(Path(text).expanduser())
    name = hub_model(text)
    folder = None if name is None else snapshot(name)
    return text if folder is None else str(folder)


def without_commit(text: str) -> str:
    """Return the name of a model without its revision, as used in prices and tables."""
    name = model_name(text)
    return text if name is None else name.repo


def hub_names(section: Section) -> list[HubName]:
    """Return the hub's names in a configuration, each once."""
    found = (_hub_name_in(path.rpartition(".")[2], value) for path, value, _ in leaves(section))
    return list(dict.fromkeys(name for name in found if name is not None))


def pin_hub_names(section: S) -> S:
    """Return a configuration whose hub names include the cached commit."""
    changes: dict[str, Any] = {}
    for field in type(section).model_fields:
        value: object = getattr(section, field)
        new = pin_hub_names(value) if isinstance(value, Section) else _at_commit(field, value)
        if new is not value:
            changes[field] = new
    return section.model_copy(update=changes) if changes else section


def _hub_name_in(field: str, value: object) -> HubName | None:
    """Return the model or data set of the hub that a field names, if it does."""
    if not isinstance(value, str):
        return None
    return hub_model(value) if field == MODEL_FIELD else dataset_name(value)


def _at_commit(field: str, value: object) -> object:
    name = _hub_name_in(field, value)
    commit = None if name is None else commit_of(name)
    return value if name is None or commit is None else name.at(commit).written


def fetch(names: Sequence[HubName]) -> None:
    """Fetch the files that the cache lacks, except code and pickles.

    Raises:
        ConfigError: if the hub refuses the download or cannot be reached.
    """
    for name in names:
        say(f"fetching {name.written} into {cache_folder()}")
        try:
            _fetch(name)
        except ImportError as error:
            raise ConfigError(
                f"--download needs huggingface_hub: {pip_install('huggingface-hub')}"
            ) from error


def _fetch(name: HubName) -> None:
    from huggingface_hub import (
        errors,
        snapshot_download,  # pyright: ignore[reportUnknownVariableType] -- its dicts have no types
    )

    is_model = name.kind == "model"
    inside = (f"*{name.inside}*",) if name.inside else ROWS
    try:
        snapshot_download(
            name.repo,
            repo_type=name.kind,
            revision=name.revision,
            cache_dir=cache_folder(),
            allow_patterns=list(WEIGHTS if is_model else inside),
            ignore_patterns=list(NOT_WEIGHTS if is_model else ("*.py",)),
        )
    except (errors.HfHubHTTPError, errors.LocalEntryNotFoundError, OSError) as error:
        raise ConfigError(f"{name.written}: {_why(name, error)}") from error


def _why(name: HubName, error: Exception) -> str:
    """Return why the hub gave nothing, and what to do."""
    from huggingface_hub import errors

    match error:
        case errors.GatedRepoError():
            return (
                "the hub requires you to accept its terms: accept them on its page, and set "
                "HF_TOKEN to your token"
            )
        case errors.RepositoryNotFoundError():
            return (
                f"no {name.noun} of this name on the hub that you may read; correct it, or set "
                "HF_TOKEN for a private one"
            )
        case errors.RevisionNotFoundError():
            return f"no revision {name.revision} on the hub"
        case errors.LocalEntryNotFoundError():
            offline = isinstance(error.__cause__, errors.OfflineModeIsEnabled)
            why = "HF_HUB_OFFLINE is set" if offline else "the hub cannot be reached"
            return f"{why}, and {cache_folder()} does not hold all of it"
        case errors.HfHubHTTPError():
            return f"the hub refuses: {redact(str(error).splitlines()[0])}"
        case _:
            return f"cannot be fetched: {redact(str(error))}"


TINY_MODELS = Path(__file__).parents[1] / "tiny" / "models"

PARAMETERS = {
    "chat_template_kwargs",
    "think_tags",
    "extra_body",
    "reasoning_effort",
    "reasoning_tokens",
}
"""Settings of an engine that change its answers, and are left out of a hash if not set."""

SCHEMA_ENGINES = frozenset({"openai", "vllm"})
"""The kinds of engines whose replies can follow a JSON schema."""

PLACE = {
    "place",
    "devices",
    "replicas",
    "tensor_parallel",
    "memory_utilization",
    "base_urls",
    "batch",
}
"""Settings of an engine about its devices and their use."""

FIXED = PLACE - {"place", "replicas"}
"""Those of them that must not change during a run."""


def locate_model(model: str, part: str = "policy") -> str:
    """Return the folder or URL of a configured model; for a hub name, the folder in the cache.

    Raises:
        ConfigError: for `smol` before its weights were prepared.
    """
    match model:
        case "tiny":
            return str(TINY_MODELS / part)
        case "smol":
            return str(prepared_folder())
        case _:
            return folder_of(model)


def is_endpoint(model: str) -> bool:
    """Whether the model is served elsewhere, so that its weights are not on this machine."""
    return model.startswith(("http://", "https://"))


@dataclass(frozen=True, kw_only=True)
class Served:
    """A model and its engine settings; equal values can share one engine.

    `name` is used for prices and notes: the name at its endpoint, else the configured one.
    `canary` is the file of the trainer's numbers by which an engine proves that it runs these
    weights; None for weights that were not trained here. `control` is put before the user's
    message when this is sampled: the condition under which it learned to answer well.
    """

    name: str
    identity: str
    location: str
    engine: EngineConfig
    canary: Path | None = None
    control: str = ""

    @property
    def is_elsewhere(self) -> bool:
        """Whether an endpoint serves it, which may charge money."""
        return engine_kind(self.location, self.engine) == "openai"

    @property
    def by_schema(self) -> bool:
        """Whether a judge's reply follows a JSON schema: in vLLM here, or if its endpoint can.

        An endpoint with a configured `response_format` gets no schema.
        """
        own = "response_format" in self.engine.extra_body
        return not own and engine_kind(self.location, self.engine) in SCHEMA_ENGINES

    @cached_property
    def engine_name(self) -> str:
        """The name of its engine, equal for models with the same weights in the same place."""
        identity = replace(self, control="").params
        return digest({"params": identity, **_run_as(self.engine)})

    @property
    def params(self) -> Json:
        """The properties that can change a completion."""
        control = {"control": self.control} if self.control else {}
        form = self.engine.model_dump(include=PARAMETERS, mode="json", exclude_defaults=True)
        vllm: Json = semantic(self.engine.vllm)
        return {
            **control,
            **form,
            "vllm": vllm,
            "model": self.identity,
            "kind": engine_kind(self.location, self.engine),
            "dtype": self.engine.dtype,
            "max_model_len": self.engine.max_model_len,
            "script": self.engine.script,
        }


def identify_model(model: str, engine: EngineConfig) -> Served:
    """Return a configured model after a check of its place; nothing is loaded.

    Raises:
        ConfigError: for settings that do not apply to it.
        EngineError: for a folder that holds no model, or an endpoint that does not answer.
    """
    location = locate_model(model)
    name = served_name(location, engine)
    if name is None and engine.extra_fields:
        raise ConfigError(
            f"engine.extra_body and engine.reasoning_effort are for endpoints: {model} runs here"
        )
    if engine.batch and (name is None or len(engine.base_urls) > 1):
        raise ConfigError(
            f"engine.batch=true: batch files are sent to one endpoint, and {model} "
            f"{'runs here' if name is None else 'has several base_urls'}: leave it out"
        )
    if name is None and engine.kind != "scripted":
        check_folder(Path(location))
        require_chat(Path(location), engine)
    elif engine.template is not None:
        raise EngineError(
            f"engine.template={engine.template}: {model} writes its prompts itself; leave it out"
        )
    return Served(
        name=name or engine.model_name or without_commit(model),
        identity=model_digest(location, engine) if name is None else endpoint_digest(name),
        location=location,
        engine=engine,
    )


def named_start(settings: RewardTraining) -> Served | None:
    """Return the initial model of a reward model's training, if one is configured.

    Raises:
        ConfigError: for an endpoint, whose weights are not here.
        EngineError: for a folder that holds no model, or a model without a prompt form.
    """
    if settings.model is None:
        return None
    if is_endpoint(settings.model):
        raise ConfigError(
            f"training.reward.model={settings.model}: the weights of an endpoint are not here; "
            "name the folder of a model"
        )
    return identify_model(settings.model, EngineConfig(template=settings.template))


def run_alike(one: EngineConfig, other: EngineConfig) -> bool:
    """Whether models under these settings run in the same way, in the same place."""
    return _run_as(one) == _run_as(other)


def _run_as(engine: EngineConfig, place: Collection[str] = PLACE) -> Mapping[str, Json]:
    """Return the settings of an engine and its place, without the model."""
    where: Json = engine.model_dump(mode="json", include={*place})
    return {"engine": semantic(engine), "place": where}


def is_like(one: Served, other: Served, *, on_gpu: bool) -> bool:
    """Whether an engine of `one` serves `other` after loading its weights."""
    same = _run_as(one.engine, FIXED) == _run_as(other.engine, FIXED)
    alike = _type(one, on_gpu=on_gpu) == _type(other, on_gpu=on_gpu)
    return same and alike and same_form(Path(one.location), Path(other.location))


def _type(served: Served, *, on_gpu: bool) -> str:
    """Return the type in which vLLM holds a model's weights; empty if a change needs no restart."""
    fixed = served.engine.dtype != "auto" or not on_gpu
    if fixed or engine_kind(served.location, served.engine) != "vllm":
        return ""
    saved = saved_type(Path(served.location))
    return "bfloat16" if saved == "float32" else saved
