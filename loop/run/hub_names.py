"""Models and data sets that a configuration names as the hub does, and their cached copies.

A name is looked up in the hub's cache once, when a command reads its configuration. From then on
the configuration holds the name with its commit, so a later commit does not change a run. A folder
of the same name takes precedence over the hub.
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from ...configs.section import Section
from ...stores.hub_cache import HubName, commit_of, dataset_name, model_name, snapshot

MODEL_FIELD = "model"
"""The name of the field for a model, in every section that has one."""

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
    """Return the folder of a model that the hub's cache has, else the text as it is."""
    name = hub_model(text)
    folder = None if name is None else snapshot(name)
    return text if folder is None else str(folder)


def without_commit(text: str) -> str:
    """Return the name of a model without its revision, as used in prices and tables."""
    name = model_name(text)
    return text if name is None else name.repo


def hub_names(section: Section) -> list[HubName]:
    """Return the hub's names in a configuration, each once."""
    return list(dict.fromkeys(name for _, name in _named(section)))


def pinned(section: S) -> S:
    """Return a configuration whose hub names include the cached commit."""
    changes: dict[str, Any] = {}
    for field, name in _own(section):
        commit = commit_of(name)
        if commit is not None:
            changes[field] = name.at(commit).written
    for field, inner in _inner(section):
        new = pinned(inner)
        if new is not inner:
            changes[field] = new
    return section.model_copy(update=changes) if changes else section


def _named(section: Section) -> Iterator[tuple[str, HubName]]:
    yield from _own(section)
    for _, inner in _inner(section):
        yield from _named(inner)


def _own(section: Section) -> Iterator[tuple[str, HubName]]:
    """Yield the fields of a section itself that name a model or data set of the hub."""
    for field in type(section).model_fields:
        value: object = getattr(section, field)
        if isinstance(value, str):
            name = hub_model(value) if field == MODEL_FIELD else dataset_name(value)
            if name is not None:
                yield field, name


def _inner(section: Section) -> Iterator[tuple[str, Section]]:
    for field in type(section).model_fields:
        value: object = getattr(section, field)
        if isinstance(value, Section):
            yield field, value
