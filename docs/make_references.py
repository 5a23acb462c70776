# pyright: basic
"""Write the generated part of the reference pages: data model, settings, commands, Python, recipes.

Run `python docs/make_references.py` after a change; a test compares the pages with the code.
"""

import inspect
import re
import typing
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from inspect import getdoc
from itertools import chain
from pathlib import Path
from typing import Any, Final

import yaml
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

import lpfloop
from lpfloop import parts
from lpfloop.configs.describe import ConfigField, every_field, roles
from lpfloop.configs.engines import MODELS
from lpfloop.configs.section import cosmetic, semantic
from lpfloop.configs.show import flow
from lpfloop.critics.checks import ASKED, FAMILIES, parameters_of
from lpfloop.loop.cli.app import PANELS, app
from lpfloop.loop.cli.config_commands import plain_default
from lpfloop.loop.library.read_only_run import ReadOnlyRun
from lpfloop.loop.recipes import RECIPES
from lpfloop.stores.schemas import ROW_TYPES, SCHEMAS

FOLDER: Final = Path(__file__).parent
SHARED: Final = "sampling"
"""The section that several roles have, which is shown once."""
RECIPE: Final = "recipe"
MOST_OTHERS: Final = 5
SHARED_BY: Final = 10
"""An option that so many commands have is described once."""
VALUES: Final[Mapping[type, str]] = {int: "N", float: "X", Path: "PATH"}
MARK = "<!-- Below this line the page is written by docs/make_references.py. -->"


class UnknownColumnError(KeyError):
    """A column of which docs/columns.yaml says nothing."""


def pages() -> Mapping[str, str]:
    """Return each page by its file's name: its hand-written head, the mark, the generated part."""
    generated = {
        "data-model.md": data_model(),
        "settings.md": settings(),
        "commands.md": commands(),
        "python.md": python(),
        "presets.md": recipes(),
        "checks.md": checks(),
    }
    return {name: f"{_head(name)}{MARK}\n\n{text}\n" for name, text in generated.items()}


def _head(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8").partition(MARK)[0]


def data_model() -> str:
    """Return the page of all tables and columns."""
    notes = yaml.safe_load((FOLDER / "columns.yaml").read_text(encoding="utf-8"))
    names = " · ".join(f"[{name}](#{name})" for name in SCHEMAS)
    tables = "\n".join(_table(name, notes) for name in SCHEMAS)
    return f"{names}\n\n{tables.strip()}"


def settings() -> str:
    """Return the page of all fields of the configuration."""
    groups = dict[str, list[ConfigField]]()
    for field in every_field():
        groups.setdefault(_section(field), []).append(field)
    names = " · ".join(f"[{name}](#{name})" for name in groups)
    tables = "\n".join(_fields(name, fields) for name, fields in groups.items())
    return f"{names}\n\n{tables.strip()}"


def commands() -> str:
    """Return the page of all commands with their arguments and options."""
    tree = typing.cast("TyperGroup", get_command(app))
    panels = {panel: list(_leaves(tree, names)) for panel, names in PANELS.items()}
    every = Counter(_option(one) for found in panels.values() for _, c in found for one in _own(c))
    shared = [row for row, count in every.items() if count >= SHARED_BY]
    lines = ["## Options of many commands", "", *_options(shared)]
    for panel, found in panels.items():
        lines += [f"## {panel}", ""]
        for name, command in found:
            lines += _command(name, command, shared)
    return "\n".join(lines).strip()


def _leaves(place: TyperGroup, names: typing.Iterable[str]) -> Iterator[tuple[str, TyperCommand]]:
    """Return the commands of these names; a group is its commands."""
    for name in names:
        found = place.commands[name]
        if isinstance(found, TyperGroup):
            words = (word for word, one in found.commands.items() if not one.hidden)
            yield from ((f"{name} {word}", one) for word, one in _leaves(found, words))
        else:
            yield name, typing.cast("TyperCommand", found)


def _own(command: TyperCommand) -> list[TyperOption]:
    options = [one for one in command.params if isinstance(one, TyperOption)]
    return [one for one in options if not one.hidden and "--help" not in one.opts]


def _command(name: str, command: TyperCommand, shared: list[tuple[str, str]]) -> list[str]:
    arguments: list[Any] = [one for one in command.params if not isinstance(one, TyperOption)]
    usage = " ".join([name, *(_placeholder(one) for one in arguments)])
    rows = [(f"`{_placeholder(one)}`", one.help or "") for one in arguments if one.help]
    rows += [_option(one) for one in _own(command)]
    common = [row.partition(" ")[0].strip("`") for row, _ in rows if (row, _) in shared]
    lines = [f"### {name}", "", f"`lpfloop {usage}`", "", *(command.help or "").splitlines(), ""]
    lines += _options([row for row in rows if row not in shared])
    if common:
        lines += [f"Also: {', '.join(f'`{word}`' for word in common)}.", ""]
    return lines


def _options(rows: list[tuple[str, str]]) -> list[str]:
    if not rows:
        return []
    table = [f"| {_cell(option)} | {_cell(text)} |" for option, text in rows]
    return ["| option | meaning |", "| --- | --- |", *table, ""]


def _option(option: TyperOption) -> tuple[str, str]:
    """Return an option as it is written, and its meaning with its default."""
    value = "" if option.is_flag else f" {_placeholder(option)}"
    text = option.help or ""
    if option.required:
        text += " Required."
    elif option.default not in (None, False, "", [], ()):
        text += f" Default: `{option.default}`."
    return f"`{', '.join(option.opts)}{value}`", text


def _placeholder(parameter: Any) -> str:
    """Return the word that stands for the value of an argument or option."""
    if isinstance(parameter, TyperOption):
        kind = parameter.type_descriptor.annotation
        value = VALUES.get(kind, "NAME") if isinstance(kind, type) else "VALUE"
        return parameter.metavar or value
    word = parameter.metavar or parameter.name.upper()
    return word if parameter.required or word.startswith("[") else f"[{word}]"


def python() -> str:
    """Return the public functions with their docstrings, a run's methods and a recipe's verbs."""
    names = [name for name in lpfloop.__all__ if not name.startswith("_")]
    functions = [_function(name, getattr(lpfloop, name)) for name in names]
    methods = [
        f"| `run.{_call(name, value)}` | {_cell(_summary(value))} |"
        for kind in reversed(ReadOnlyRun.__mro__)
        for name, value in vars(kind).items()
        if kind.__module__.startswith("lpfloop.") and not name.startswith("_")
        if callable(value) or isinstance(value, property)
    ]
    head = ["## Methods of a run", "", "| method | description |", "| --- | --- |"]
    return "\n".join(["## Functions", "", *functions, *head, *methods, "", *_verbs()])


def _verbs() -> list[str]:
    """Return the functions of `lpfloop.parts`, which recipes call."""
    found = {name: getattr(parts, name) for name in parts.__all__}
    verbs = [
        f"| `{_call(name, value)}` | {_cell(_summary(value))} |"
        for name, value in found.items()
        if inspect.isfunction(value) and value not in (cosmetic, semantic)
    ]
    named = "Import them from `lpfloop.parts`; `help(lpfloop.parts.pair)` has the arguments."
    head = ["## Verbs of a recipe", "", named, "", "| verb | description |", "| --- | --- |"]
    return [*head, *verbs]


def recipes() -> str:
    """Return the table of all recipes."""
    rows = [f"| `{name}` | {one.paper} | {one.summary} |" for name, one in RECIPES.items()]
    return "\n".join(
        ["## Recipes", "", "| recipe | paper | description |", "| --- | --- | --- |", *rows]
    )


def checks() -> str:
    """Return the table of all kinds of checks: plain ones and IFEval's families."""
    rows = [
        f"| `{kind}` | {', '.join(f'`{name}`' for name in _parameters(kind, text)) or 'none'} "
        f"| {_asked(text)} |"
        for kind, text in ASKED.items()
    ]
    return "\n".join(
        ["## Kinds", "", "| kind | argument | asks for |", "| --- | --- | --- |", *rows]
    )


def _function(name: str, function: Callable[..., object]) -> str:
    call = f"lpfloop.{_call(name, function)}"
    return f"### lpfloop.{name}\n\n```text\n{call}\n\n{getdoc(function)}\n```\n"


def _call(name: str, value: object) -> str:
    """Return a call with the names of the parameters and their defaults, without types."""
    if not callable(value):
        return name
    given = inspect.signature(value).parameters.values()
    bare = [one.replace(annotation=one.empty) for one in given if one.name != "self"]
    return f"{name}{inspect.Signature(bare)}"


def _summary(value: object) -> str:
    return (getdoc(value) or "").partition("\n\n")[0]


def _parameters(kind: str, text: str) -> list[str]:
    if kind in FAMILIES:
        return list(parameters_of(kind).model_fields)
    return ["argument"] if "{argument" in text else []


def _asked(text: str) -> str:
    named = re.sub(r"\{(\w+)(?:!r)?\}", r"`\1`", text)
    return re.sub(r"([*<>|])", r"\\\1", named)


def _table(name: str, notes: Mapping[str, Mapping[str, Any]]) -> str:
    row_type = ROW_TYPES[name]
    lines = [f"## {name}", "", *_docstring(row_type), "", "| column | type | meaning | null |"]
    lines.append("| --- | --- | --- | --- |")
    for field in SCHEMAS[name]:
        says, null = _note(name, field.name, notes)
        if (null is not None) != _optional(row_type, field.name):
            raise UnknownColumnError(f"docs/columns.yaml: {name}.{field.name}: say what null means")
        lines.append(f"| `{field.name}` | {_type(field.type)} | {says} | {null or ''} |")
    return "\n".join([*lines, ""])


def _note(
    table: str, column: str, notes: Mapping[str, Mapping[str, Any]]
) -> tuple[str, str | None]:
    found = notes["tables"].get(table, {}).get(column, notes["shared"].get(column))
    if found is None:
        raise UnknownColumnError(f"docs/columns.yaml says nothing of {table}.{column}")
    return (found, None) if isinstance(found, str) else (found["says"], found["null"])


def _optional(row_type: type, column: str) -> bool:
    return type(None) in typing.get_args(typing.get_type_hints(row_type)[column])


def _docstring(row_type: type) -> list[str]:
    """Return a record's docstring, its code names as Markdown has them."""
    return (getdoc(row_type) or "").splitlines()


def _type(kind: object) -> str:
    text = re.sub(r"\b(item|element): ", "", str(kind)).replace("|", "\\|")
    return WORDS.get(text, text)


def _section(field: ConfigField) -> str:
    first, _, rest = field.path.partition(".")
    if f".{SHARED}." in field.path:
        return SHARED
    return first if rest else "run"


def _fields(name: str, fields: list[ConfigField]) -> str:
    """Return the table of a section; what several roles or recipes have alike is one row."""
    lines = [f"## {name}", ""]
    own = name == RECIPE
    rows = dict[tuple[str, str, str, str], dict[str, list[str]]]()
    for field in fields:
        role, path = _split(field)
        key = (path, _kind(field), field.effect, _cell(field.description))
        rows.setdefault(key, {}).setdefault(_default(field), []).append(role)
    if name == MODELS:
        named = ", ".join(f"`{role}`" for role in roles())
        told = (
            f"The roles {named} have a `model`: a name in `models`, or a location. A role's path "
            "reaches its model: `policy.engine.dtype` is the `dtype` of the policy's model."
        )
        lines += [told, ""]
    if name == SHARED:
        samplers = dict.fromkeys(_split(field)[0] for field in fields)
        lines += [f"`ROLE` is {', '.join(f'`{role}`' for role in samplers)}.", ""]
    lines += [
        "| field | type | default | effect | meaning |",
        "| --- | --- | --- | --- | --- |",
    ]
    for (path, kind, effect, text), defaults in rows.items():
        of = f" ({', '.join(chain(*defaults.values()))})" if own and path != "recipe.name" else ""
        lines.append(f"| `{path}` | {kind} | {_defaults(defaults)} | {effect} | {text}{of} |")
    return "\n".join([*lines, ""])


def _split(field: ConfigField) -> tuple[str, str]:
    """Return the role, or the recipe, whose field it is, and its path without the role."""
    role, found, rest = field.path.partition(f".{SHARED}.")
    return (role, f"ROLE.{SHARED}.{rest}") if found else (field.recipe, field.path)


def _kind(field: ConfigField) -> str:
    if field.path == "recipe.name":
        return "name of a [recipe](../README.md#methods), or `./FILE.py:NAME`"

        return "name of a [recipe](presets.md#recipes), or `./FILE.py:NAME`"
    return _cell(f"{field.kind}{f', {field.range}' if field.range else ''}")


def _defaults(roles: Mapping[str, list[str]]) -> str:
    """Return the usual default, and who has another one."""
    usual, *others = sorted(roles, key=lambda default: -len(roles[default]))
    if len(others) > MOST_OTHERS:
        return "by recipe"
    return "; ".join([usual, *(f"{other}: {', '.join(roles[other])}" for other in others)])


def _default(field: ConfigField) -> str:
    if field.secret:
        return "none"
    value = plain_default(field.default)
    if value in (None, "", [], {}):
        return "none" if value is None else "empty"
    return f"`{_cell(flow(value))}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def write() -> Iterator[Path]:
    """Write the pages."""
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        yield FOLDER / name


WORDS = {
    "string": "text",
    "int64": "integer",
    "int8": "integer",
    "double": "number",
    "bool": "true or false",
    "list<string>": "list of texts",
    "list<int8>": "list of integers",
    "list<struct<role: string, content: string>>": "list of `role`, `content`",
    "list<struct<kind: string, argument: string>>": "list of `kind`, `argument`",
    "list<struct<name: string, rating: int8, comment: string>>": (
        "list of `name`, `rating`, `comment`"
    ),
}
if __name__ == "__main__":
    for page in write():
        print(page)  # noqa: T201 -- a script
