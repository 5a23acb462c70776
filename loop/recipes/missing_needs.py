"""Whether a recipe's settings ask for all that its verbs need, found before anything is paid.

The recipe's code is looked through, and that of the functions that it names in its own module and
in this package. A function that declares its needs is not looked into: it answers for what it does.
"""

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import CodeType, ModuleType
from typing import Any, TypeVar

from ...configs.grouped_recipes import Grouped
from ...configs.recipes import Annotated, Completed, Graded, Pooled, Ranked, Rewarded, Varied
from ...configs.schema import ConfigError, RunConfig
from ..data.prompts import LABELLED
from ..data.splits import PARTS
from ..run.completers import completes
from ..run.models import NO_MODEL, is_rewarded
from ..run.needs import Asks, Needs
from ..stages.complete import complete
from ..stages.group_rl import TRAININGS
from ..stages.people_labels import labelled
from ..stages.refine import revise
from .annotated_pairs import simulated, surrogate
from .reward_needs import require_rewarding

T = TypeVar("T")


def require_needs(recipe: Callable[..., Any], config: RunConfig) -> None:
    """Refuse a recipe that would find half-way that its run was opened without what it needs.

    Raises:
        ConfigError: naming the verb, and the class that is missing among the settings' bases.
    """
    settings, verbs = config.recipe, verbs_of(recipe)
    if config.annotation.source and not {labelled, surrogate} & verbs.keys():
        raise ConfigError(
            f"{LABELLED} is set, and the recipe {settings.name} takes no comparisons from there: "
            "`annotated` does, and so does `surrogate`; leave it out"
        )
    for verb, needed in verbs.items():
        for base in needed:
            if not isinstance(settings, base):
                raise ConfigError(
                    f"the recipe {settings.name} calls {verb.__name__}, which needs "
                    f"{base.__name__} among the bases of {type(settings).__name__}, the class of "
                    "its settings"
                )
        learned = {Annotated, Completed, Pooled, Graded} & {*needed}
        if is_rewarded(config) and Rewarded not in needed and learned:
            raise ConfigError(
                f"the recipe {settings.name} calls {verb.__name__}, which a recipe with Rewarded "
                "among the bases of its settings cannot where a reward model is configured: take "
                "`surrogate` or `graded_reward`, which know, or set reward.model to none"
            )
    require_rewarding(config)
    _require_pool_asked(recipe, config)
    _require_teacher(recipe, config)
    learns = isinstance(settings, Completed)
    if learns or config.reward.model != NO_MODEL:
        return
    if isinstance(settings, Varied) and config.prompts.variance.margin is not None:
        raise ConfigError(
            f"reward.model is none, and the recipe {settings.name} trains no reward model ahead of "
            "its filter: prompts.variance.margin needs one"
        )
    if isinstance(settings, Rewarded | Ranked):
        raise ConfigError(
            f"reward.model is none, and the recipe {settings.name} goes by a reward and trains no "
            "reward model: name one by --set reward.model=FOLDER, or a function as ./FILE.py:NAME"
        )


def _require_teacher(recipe: Callable[..., Any], config: RunConfig) -> None:
    """Refuse the verifier in the place of a teacher, whose texts are learned.

    Raises:
        ConfigError: naming the setting.
    """
    if revise in asking(recipe, config) and config.critic.kind == "verifier":
        raise ConfigError(
            f"critic.kind is verifier, which writes no better answers, and the recipe "
            f"{config.recipe.name} learns those of a teacher: leave critic.kind out, and name one "
            "by --critic FOLDER or URL"
        )


def _require_pool_asked(recipe: Callable[..., Any], config: RunConfig) -> None:
    """Refuse a pool of models where the recipe does not ask it.

    Raises:
        ConfigError: if it is so.
    """
    compares = not isinstance(config.recipe, Pooled)
    if compares and completes(config) and complete not in asking(recipe, config):
        raise ConfigError(
            f"completion.pool would change nothing: the recipe {config.recipe.name} does not call "
            "complete; leave it out"
        )


def verbs_of(recipe: Callable[..., Any]) -> Needs:
    """Return the functions that a recipe calls, by itself or by others, that declare needs."""
    needs: Needs = told_of_calls(recipe, partial(_declared, "NEEDS"))
    return needs


def asking(recipe: Callable[..., Any], config: RunConfig) -> Asks:
    """Return the functions that a recipe calls, by itself or by others, that ask models.

    Where people's labels take the place of simulated annotators', those are not asked; nor is who
    has no part in a group's rewards.
    """
    settings = config.recipe

    def told(function: Callable[..., Any]) -> tuple[str, ...] | None:
        if config.annotation.source and function is simulated:
            return ()
        asked = _declared("ASKS", function)
        if isinstance(settings, Grouped) and function in TRAININGS:
            silent = settings.rewards.silent
            return tuple(role for role in asked or () if role not in silent)
        return asked

    asks: Asks = told_of_calls(recipe, told)
    return asks


def parts_used(recipe: Callable[..., Any], config: RunConfig) -> frozenset[str]:
    """Return the parts of the prompts that a recipe names.

    Where a reward model is configured, none is made: what `surrogate` does is not looked into. Nor
    is what annotators compare, where people's labels take their place.
    """
    names = set[str]()

    def told(function: Callable[..., Any]) -> tuple[Any, ...] | None:
        needs = _declared("NEEDS", function)
        if is_rewarded(config) and needs is not None:
            return needs
        if config.annotation.source and function is simulated:
            return ()
        if _is_own(function, recipe):
            names.update(_texts(function))
        return None

    told_of_calls(recipe, told)
    return frozenset(PARTS) & names


def told_of_calls(
    recipe: Callable[..., Any], told: Callable[[Callable[..., Any]], T | None]
) -> dict[Callable[..., Any], T]:
    """Return what is `told` of the functions that a recipe calls, by itself or by others.

    A function of which something is told is not looked into.
    """
    found: dict[Callable[..., Any], T] = {}
    seen, waiting = set[int](), [recipe]
    while waiting:
        function = inspect.unwrap(waiting.pop())
        if id(function) in seen:
            continue
        seen.add(id(function))
        if (said := told(function)) is not None:
            found[function] = said
        elif _is_own(function, recipe):
            waiting += _named_in(function)
    return found


def _declared(name: str, function: Callable[..., Any]) -> tuple[Any, ...] | None:
    """Return what a function's module declares of it under a name."""
    declared: Mapping[Callable[..., Any], tuple[Any, ...]] = getattr(
        sys.modules.get(function.__module__), name, {}
    )
    return declared.get(function)


def _is_own(function: Callable[..., Any], recipe: Callable[..., Any]) -> bool:
    """Whether a function is part of the recipe: of its module, or of this package."""
    return function.__module__ == recipe.__module__ or _is_here(function.__module__)


def _texts(function: Callable[..., Any]) -> Iterator[str]:
    """Give the texts that stand in a function's code."""
    code: CodeType | None = getattr(function, "__code__", None)
    for part in () if code is None else _codes(code):
        yield from (constant for constant in part.co_consts if isinstance(constant, str))


def _is_here(module: str) -> bool:
    return module.startswith(f"{__package__}.")


def _named_in(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Give the functions that a function's code names: its globals, and the members of modules."""
    code: CodeType | None = getattr(function, "__code__", None)
    if code is None:
        return
    names = [name for part in _codes(code) for name in part.co_names]
    spaces: dict[str, Any] = inspect.unwrap(function).__globals__
    things = [spaces[name] for name in names if name in spaces]
    things += [sys.modules[name] for name in names if name in sys.modules]
    modules = [thing for thing in things if isinstance(thing, ModuleType)]
    while modules:
        module = modules.pop()
        members = [getattr(module, name, None) for name in names]
        things += members
        modules += [m for m in members if isinstance(m, ModuleType) and m is not module]
    yield from (thing for thing in things if inspect.isfunction(thing))


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Give a function's code, and that of the functions written inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
