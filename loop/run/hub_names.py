# pyright: basic
"""Models and data sets that a configuration names as the hub does, and their cached copies.

A name is looked up in the hub's cache once, when a command reads its configuration. From then on
the configuration holds the name with its commit, so a later commit does not change a run. A folder
of the same name takes precedence over the hub. `fetch` downloads, if a command line asks for it.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from ...configs.mistakes import ConfigError
from ...configs.secrecy import redact
from ...configs.section import Section, leaves
from ...stores.hub_cache import (
    HubName,
    cache_folder,
    commit_of,
    dataset_name,
    model_name,
    snapshot,
)
from ...stores.installation import pip_install
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
    from huggingface_hub import errors, snapshot_download

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
