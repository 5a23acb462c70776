"""Recipes by name: the shipped ones, and users' functions."""

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, cast, get_type_hints

from pydantic_core import PydanticCustomError

from . import recipes
from .mistakes import ConfigError, alike, did_you_mean, list_names
from .own_function import OwnFunction, names_function, own_function
from .recipes import Recipe
from .section import EFFECT, Section

DEFAULT_RECIPE = "rlrf"
ITERATION_AND_CONFIG = 2


@cache
def recipe_classes() -> Mapping[str, type[Recipe]]:
    """Return the settings' classes of the shipped recipes, by name."""
    classes = cast("list[object]", list(vars(recipes).values()))
    found = [kind for kind in classes if isinstance(kind, type) and issubclass(kind, Recipe)]
    named = {str(kind.model_fields["name"].default): kind for kind in found}
    return {name: kind for name, kind in named.items() if name}


def recipe_class(name: str) -> type[Recipe]:
    """Return the class of a recipe's settings.

    Raises:
        ConfigError: if the recipe does not exist, or the user's cannot be used.
    """
    if name in recipe_classes():
        return recipe_classes()[name]
    if names_function(name):
        return settings_class(own_recipe(name))
    raise ConfigError(unknown_recipe(name))


def own_recipe(place: str) -> OwnFunction:
    """Import a user's recipe.

    Raises:
        ConfigError: if it cannot be used.
    """
    return own_function(place, arguments=ITERATION_AND_CONFIG)


def settings_class(recipe: OwnFunction) -> type[Recipe]:
    """Return the class in the annotation of the second parameter of a user's recipe.

    Raises:
        ConfigError: if it is missing, or is not a class of a recipe's settings.
    """
    parameter = list(inspect.signature(recipe.function).parameters.values())[1]
    kind = _resolve_annotation(recipe.function, parameter)
    if not (isinstance(kind, type) and issubclass(kind, Recipe)):
        raise ConfigError(
            f"{recipe.place}: annotate its second parameter, {parameter.name!r}, with the class of "
            "its settings: one of lpfloop.configs.recipes, or your own that extends one"
        )
    _require_declared(recipe.place, kind)
    return kind


def settings_of(name: str) -> frozenset[str]:
    """Return the names of a recipe's settings.

    Raises:
        ConfigError: as `recipe_class`.
    """
    return frozenset(recipe_class(name).model_fields)


def chosen_recipe(value: object) -> object:
    """Validate a recipe's settings by the class of the recipe that they name."""
    if not isinstance(value, dict):
        return value
    values = cast("dict[str, object]", value)
    name = values.get("name", DEFAULT_RECIPE)
    try:
        kind = recipe_class(str(name))
    except ConfigError as error:
        raise PydanticCustomError("recipe", "{reason}", {"reason": str(error)}) from error
    return kind.model_validate({**values, "name": name})


def short_name(name: str) -> str:
    """Return a recipe's name in the form for the name of a run."""
    return name.rpartition(":")[2].lower() if names_function(name) else name


def unknown_recipe(name: str) -> str:
    """Return the message for an unknown recipe."""
    names = list_names(alike(name, recipe_classes()), "`lpfloop config recipes` lists them")
    return (
        f"there is no recipe {name!r}; {did_you_mean(name, recipe_classes())}recipes: {names}, "
        "or a function of your own as ./FILE.py:NAME"
    )


def _resolve_annotation(function: Callable[..., Any], parameter: inspect.Parameter) -> object:
    """Return the annotation of a parameter, also if it is a text."""
    parameter_type = type("Parameter", (), {"__annotations__": {"it": parameter.annotation}})
    try:
        return get_type_hints(parameter_type, inspect.unwrap(function).__globals__).get("it")
    except (NameError, TypeError, AttributeError):
        return None


def _require_declared(place: str, section: type[Section]) -> None:
    """Refuse settings without a declared effect on rows."""
    for name, info in section.model_fields.items():
        kind = info.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            _require_declared(place, kind)
        elif EFFECT not in cast("Mapping[str, object]", info.json_schema_extra or {}):
            raise ConfigError(
                f"{place}: the setting {section.__name__}.{name} must declare whether it changes "
                f'rows: write {name}: TYPE = semantic(DEFAULT, "description")'
            )
