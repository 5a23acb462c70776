"""The aspects a critique rates, with three-level rubrics (RLRF, Section 3.1, Table 7), from YAML.

A file lists aspects under `aspects`, each with `name`, `criteria` and `levels` (-1, 0 and 1). With
`extends: paper` it starts from a shipped file: an aspect of a known name replaces only the fields
and levels that it states, a new name adds an aspect.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml

from ..configs.schema import ConfigError
from ..stores.records import Rating

RUBRICS = Path(__file__).parent / "rubrics"
LEVELS: tuple[Rating, ...] = (-1, 0, 1)
FIELDS = frozenset({"name", "criteria", "levels"})
NAME_MARKS = frozenset("{}[]\"'\\`:\n\r")
"""What a name can not hold, since it is a dictionary key and a heading in the critic's reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aspect:
    """One aspect: what is asked, and what earns -1 (failure), 0 (moderate) and 1 (success)."""

    name: str
    criteria: str
    failure: str
    moderate: str
    success: str


def shipped() -> tuple[str, ...]:
    """Return the names of the aspect files that come with the package."""
    return tuple(sorted(path.stem for path in RUBRICS.glob("*.yaml")))


def load_aspects(name_or_path: str) -> tuple[Aspect, ...]:
    """Read a shipped aspects file by its name, or a YAML file by its path.

    Raises:
        ConfigError: if there is no such file, or it is not a list of whole aspects; names file and
        field.
    """
    path = RUBRICS / f"{name_or_path}.yaml" if name_or_path in shipped() else Path(name_or_path)
    entries = _entries(path, may_extend=True)
    return tuple(_aspect(entry, f"{path}: aspects[{entry['name']!r}]") for entry in entries)


def render_aspects(aspects: tuple[Aspect, ...]) -> str:
    """Write aspects as templates show them: name, criteria, scoring; several are numbered."""
    return "\n\n".join(
        f"{f'{number}. ' if len(aspects) > 1 else ''}Skill: {aspect.name}\n"
        f"Criteria: {aspect.criteria}\n"
        f'Scoring: "-1": {aspect.failure} "0": {aspect.moderate} "1": {aspect.success}'
        for number, aspect in enumerate(aspects, start=1)
    )


def _entries(path: Path, *, may_extend: bool) -> list[dict[str, Any]]:
    """Return the raw aspects of a file, laid over those of the file it extends."""
    document = _mapping(_parse(path), str(path), frozenset({"aspects", "extends"}))
    listed = document.get("aspects")
    if not isinstance(listed, list) or not listed:
        raise ConfigError(f"{path}: 'aspects' must be a list with at least one aspect")
    merged = _base(document, path) if may_extend else {}
    inherited = frozenset(merged)
    stated: set[str] = set()
    for number, raw in enumerate(cast("list[object]", listed)):
        where = f"{path}: aspects[{number}]"
        entry = _mapping(raw, where, FIELDS)
        name = _name(entry.get("name"), where)
        if name in stated:
            raise ConfigError(f"{where}.name: {name!r} stands there twice")
        stated.add(name)
        merged[name] = _overlaid(merged[name], entry) if name in inherited else entry
    return list(merged.values())


def _base(document: dict[str, Any], path: Path) -> dict[str, dict[str, Any]]:
    base = document.get("extends")
    if base is None:
        return {}
    if base not in shipped():
        raise ConfigError(f"{path}: 'extends' must be one of {', '.join(shipped())}, not {base!r}")
    return {entry["name"]: entry for entry in _entries(RUBRICS / f"{base}.yaml", may_extend=False)}


def _overlaid(base: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    merged = base | entry
    if isinstance(entry.get("levels"), dict):
        merged["levels"] = base["levels"] | entry["levels"]
    return merged


def _parse(path: Path) -> object:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        known = ", ".join(shipped())
        raise ConfigError(
            f"{path}: no aspects file can be read ({error.strerror}); shipped ones are {known}"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: is not YAML: {' '.join(str(error).split())}") from error


def _mapping(value: object, where: str, allowed: frozenset[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: must be a mapping with {', '.join(sorted(allowed))}")
    mapping = cast("dict[Any, Any]", value)
    for key in mapping:
        if key not in allowed:
            raise ConfigError(
                f"{where}: unknown field {key!r}; known are {', '.join(sorted(allowed))}"
            )
    return mapping


def _name(value: object, where: str) -> str:
    name = _text(value, f"{where}.name")
    if NAME_MARKS & set(name):
        raise ConfigError(
            f"{where}.name: {name!r} holds a quote, bracket, colon, backslash or line break"
        )
    return name


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{where}: must be a text, not {value!r}")
    return value.strip()


def _aspect(entry: dict[str, Any], where: str) -> Aspect:
    levels = entry.get("levels")
    if not isinstance(levels, dict):
        raise ConfigError(f"{where}.levels: must give a text for each of -1, 0 and 1")
    texts = cast("dict[Any, Any]", levels)
    for level in texts:
        # `type is int` because YAML's `true` equals 1 as a key.
        if type(level) is not int or level not in LEVELS:
            raise ConfigError(f"{where}.levels: {level!r} is no level; the levels are -1, 0 and 1")
    failure, moderate, success = (
        _text(texts.get(level), f"{where}.levels[{level}]") for level in LEVELS
    )
    return Aspect(
        name=entry["name"].strip(),
        criteria=_text(entry.get("criteria"), f"{where}.criteria"),
        failure=failure,
        moderate=moderate,
        success=success,
    )
