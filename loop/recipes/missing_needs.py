"""Whether a recipe's settings ask for all that its verbs need, found before anything is paid.

The recipe's code is looked through, and that of the functions that it names in its own module and
in this package. A function that declares its needs is not looked into: it answers for what it does.
"""

import inspect
import sys
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from ...configs.engines import WHOLE
from ...configs.recipes import Annotated, Graded, Recipe, Rewarded
from ...configs.schema import ConfigError, RunConfig
from ...policies.engines.thinking import INSIDE, begins_inside
from ..run.models import NO_MODEL, is_rewarded, located
from ..run.needs import Needs
from ..stages.online_rl import train_ppo, train_quark
from ..stages.train import train

DECLARED = "NEEDS"


def require_needs(recipe: Callable[..., Any], config: RunConfig) -> None:
    """Refuse a recipe that would find half-way that its run was opened without what it needs.

    Raises:
        ConfigError: naming the verb, and the class that is missing among the settings' bases.
    """
    settings = config.recipe
    verbs = verbs_of(recipe)
    require_plain_sampling(verbs, config)
    require_separable_thought(verbs, config)
    for verb, needed in verbs.items():
        for base in needed:
            if not isinstance(settings, base):
                raise ConfigError(
                    f"the recipe {settings.name} calls {verb.__name__}, which needs "
                    f"{base.__name__} among the bases of {type(settings).__name__}, the class of "
                    "its settings"
                )
        if is_rewarded(config) and Rewarded not in needed and {Annotated, Graded} & {*needed}:
            raise ConfigError(
                f"the recipe {settings.name} calls {verb.__name__}, which a recipe with Rewarded "
                "among the bases of its settings cannot where a reward model is configured: take "
                "`surrogate` or `graded_reward`, which know, or set reward.model to none"
            )
    learns = isinstance(settings, Annotated | Graded)
    if isinstance(settings, Rewarded) and not learns and config.reward.model == NO_MODEL:
        raise ConfigError(
            f"reward.model is none, and the recipe {settings.name} optimises a reward and trains "
            "no reward model: name a folder, or a function as ./FILE.py:NAME"
        )


def require_plain_sampling(verbs: Container[Callable[..., Any]], config: RunConfig) -> None:
    """Refuse to learn online from answers that are not drawn from all that the policy says.

    Raises:
        ConfigError: naming the setting.
    """
    if train_ppo not in verbs and train_quark not in verbs:
        return
    sampling = config.policy.sampling
    for name, whole in WHOLE.items():
        value: object = getattr(sampling, name)
        if value != whole:
            raise ConfigError(
                f"policy.sampling.{name} is {value}: {config.recipe.name} learns by the "
                "probabilities of all tokens, so its answers must be drawn from all of them; "
                f"leave {name} out"
            )


def require_separable_thought(verbs: Container[Callable[..., Any]], config: RunConfig) -> None:
    """Refuse to train answers alone where the policy's turns begin inside a thought.

    Raises:
        ConfigError: naming the setting.
    """
    folder, engine = Path(located(config.policy.model)), config.policy.engine
    if train not in verbs or config.training.thought != "none" or engine.kind == "scripted":
        return
    if folder.is_dir() and begins_inside(folder, engine):
        raise ConfigError(f"training.thought is none: {INSIDE.format(folder)}")


def verbs_of(recipe: Callable[..., Any]) -> Needs:
    """Return the functions that a recipe calls, by itself or by others, that declare needs."""
    found: dict[Callable[..., Any], tuple[type[Recipe], ...]] = {}
    seen, waiting = set[int](), [recipe]
    while waiting:
        function = inspect.unwrap(waiting.pop())
        if id(function) in seen:
            continue
        seen.add(id(function))
        declared: Needs = getattr(sys.modules.get(function.__module__), DECLARED, {})
        if function in declared:
            found[function] = declared[function]
        elif function.__module__ == recipe.__module__ or _is_here(function.__module__):
            waiting += _named_in(function)
    return found


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
