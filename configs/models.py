"""Models by name: `models` says once where a model is and what runs it, for all roles that name it.

A role's `model` is the name of one of them, or a location. A setting of a role's engine
(`policy.engine.dtype`) is one of its model, so it holds for every role that names the model.
"""

from pydantic import Field

from .engines import EngineConfig
from .section import Place, Section, semantic

MODELS = "models"
"""The key of the map in a file."""
NAME = "NAME"
"""Stands for the name of a model in paths of fields: `models.NAME.engine.dtype`."""


class ModelConfig(Section):
    """A model that roles refer to by its name in `models`."""

    location: Place | None = semantic(
        None, "a shipped name, a folder, or an OpenAI-compatible URL; default: the model's name"
    )
    engine: EngineConfig = EngineConfig()


class ModelsByName(Section):
    """The part of a file that names models."""

    models: dict[str, ModelConfig] = Field(
        {}, description="models by name; the `model` of a role is one of them, or a location"
    )
