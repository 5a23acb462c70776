"""The names of sets of held-out prompts, and settings that may differ from set to set."""

import re
from collections.abc import Mapping
from typing import Annotated, TypeVar, cast

from pydantic import AfterValidator, Field

V = TypeVar("V")

_SIDE_EVAL = re.compile(r"-[0-9a-f]{8}$")
"""The end of the name of a file that is measured outside a run: the hash of its prompts."""


def _not_a_side_eval(name: str) -> str:
    if _SIDE_EVAL.search(name):
        raise ValueError(
            f"eval set name {name!r} must not end in a hash, as in names of `lpfloop eval run`"
        )
    return name


EvalSetName = Annotated[
    str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$"), AfterValidator(_not_a_side_eval)
]
"""The name of a set of held-out prompts."""


def of_eval_set(setting: V | Mapping[str, V] | None, eval_set: str | None) -> V | None:
    """Return a setting's value for a set: the same for all, unless the setting names sets."""
    if isinstance(setting, Mapping):
        named = cast("Mapping[str, V]", setting)
        return None if eval_set is None else named.get(eval_set)
    return setting
