"""The prompts and models of a new configuration, and its recipe, checked before it is written.

Device memory is not checked: the file may be for another machine.
"""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from ...configs.own_function import names_function
from ...configs.schema import ConfigError, PromptsConfig, RunConfig
from ...policies.engines.engine import EngineError
from ...policies.workers.identity import check_folder, is_url
from ...stores.hub_cache import HubName, commit_of, dataset_name
from ..data.prompts import load_prompts
from ..run.hub_names import hub_model, hub_names
from ..run.served import locate_model
from .job import Job
from .loop import required_prompts
from .opening import required_roles
from .planning import dry_rehearsal


def check_prompts(source: str) -> None:
    """Refuse prompts that cannot be read; data sets of the hub may be downloaded later.

    Raises:
        ConfigError, InputError: as `load_prompts`.
    """
    name = dataset_name(source)
    if name is None or commit_of(name) is not None:
        load_prompts(PromptsConfig(source=source), seed=0)


def check_model(place: str) -> None:
    """Refuse a folder that holds no model; a model of the hub may be fetched later.

    Raises:
        ConfigError: if it cannot be used.
    """
    name = hub_model(place)
    if is_url(place) or names_function(place) or (name is not None and commit_of(name) is None):
        return
    try:
        check_folder(Path(locate_model(place)))
    except EngineError as error:
        raise ConfigError(str(error)) from error


def absent_names(config: RunConfig) -> Collection[HubName]:
    """Return the hub names of a configuration that are not in the hub's cache."""
    return [name for name in hub_names(config) if commit_of(name) is None]


def check_draft(job: Job) -> None:
    """Refuse a configuration that `run --dry-run` would refuse on a machine of any size.

    Raises:
        ConfigError, InputError: naming the unusable setting or file.
    """
    if absent_names(job.config):
        return
    seen = dry_rehearsal(job, required_prompts(job.config, job.read_lake)).seen
    required_roles(replace(job, config=job.config.model_copy(update={"memory": "ignore"})), seen)
