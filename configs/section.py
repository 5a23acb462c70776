"""A part of the configuration, whose fields declare their effect.

Unknown keys are refused. Every field declares its effect: *semantic* (it can change a row of the
lake, and is part of unit keys), *cosmetic* (it changes only how fast, where or how verbosely the
same rows are made) or *live* (cosmetic, and can be changed during a run).
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar, cast
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)
from pydantic.fields import FieldInfo

EFFECT = "effect"

Effect = Literal["semantic", "cosmetic", "live"]


def semantic(default: Any, description: str, **constraints: Any) -> Any:
    """Declare a field that can change a row: it is part of unit keys."""
    return _declare("semantic", default, description, **constraints)


def cosmetic(default: Any, description: str, **constraints: Any) -> Any:
    """Declare a field that cannot change any row: it stays out of unit keys."""
    return _declare("cosmetic", default, description, **constraints)


def live(default: Any, description: str, **constraints: Any) -> Any:
    """Declare a cosmetic field that `lpfloop ctl set` can change during a run."""
    return _declare("live", default, description, **constraints)


def _declare(effect: Effect, default: Any, description: str, **constraints: Any) -> Any:
    extra: dict[str, Any] = {EFFECT: effect}
    return Field(default, description=description, json_schema_extra=extra, **constraints)


def without_credentials(value: str) -> str:
    """Refuse a URL with a password: the configuration is stored with the run."""
    if "@" in value and "://" in value and "@" in urlsplit(value).netloc:
        raise ValueError("a URL must not carry credentials; set LPFLOOP_API_KEY instead")
    return value


Place = Annotated[str, Field(min_length=1), AfterValidator(without_credentials)]
"""The place of a model or file: a shipped name, a path, or a URL."""


def or_auto(accepts: Callable[[Any], bool], form: str) -> BeforeValidator:
    """Return the check that a value is `auto` or accepted; `form` describes the accepted values."""

    def check(value: object) -> object:
        if value != "auto" and not accepts(value):
            raise ValueError(f"must be {form}, or auto")
        return value

    return BeforeValidator(check)


def is_count(value: object, least: int = 1) -> bool:
    """Whether a value is a whole number from `least` on, and no truth value."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _are_devices(value: object) -> bool:
    listed = cast("list[object]", value if isinstance(value, list | tuple) else [None])
    return all(is_count(each, 0) for each in listed)


def _is_weight(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


Devices = Annotated[
    tuple[int, ...] | Literal["auto"],
    or_auto(_are_devices, "a list of GPUs by their numbers, such as [0, 1]"),
]
"""GPUs by their numbers, or all that are visible."""
AutoCount = Annotated[int | Literal["auto"], or_auto(is_count, "a number from 1 on")]
"""How many copies of a model, or processes, share its work; `auto`: as many as its devices hold."""
AutoWeight = Annotated[float | Literal["auto"], or_auto(_is_weight, "a number above 0")]
"""The weight of a side of a loss; `auto`: by the counts of its rows."""
WorkerPlace = Literal["local", "ray"]
"""The place of a worker: this machine, or a Ray cluster."""


class Section(BaseModel):
    """A part of the configuration: immutable, and strict about its keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _complete_sections(cls, values: object) -> object:
        """Complete partly set sections by the defaults that they have in this section.

        A critic with only `max_tokens` set stays greedy: 0 is its temperature's default, unlike the
        default of the section's class.
        """
        if not isinstance(values, dict):
            return values
        given = cast("dict[str, Any]", values)
        own = {
            name: {**field.default.model_dump(exclude_unset=True), **given[name]}
            for name, field in cls.model_fields.items()
            if isinstance(field.default, Section) and isinstance(given.get(name), dict)
        }
        return {**given, **own}


def leaves(section: Section, prefix: str = "") -> Iterator[tuple[str, object, FieldInfo]]:
    """Yield path, value and declaration of each plain field of a section, at any depth."""
    for name, info in type(section).model_fields.items():
        value: object = getattr(section, name)
        if isinstance(value, Section):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value, info


S = TypeVar("S", bound=Section)


def with_values(section: S, values: Mapping[str, object]) -> S:
    """Return a section with other values by their dotted paths, which are not checked."""
    for path, value in values.items():
        name, _, rest = path.partition(".")
        inner = with_values(getattr(section, name), {rest: value}) if rest else value
        section = section.model_copy(update={name: inner})
    return section
