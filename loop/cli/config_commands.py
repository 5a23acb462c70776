"""`lpfloop config`: the settings of a run or of a command, their differences, all settings."""

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...stores.address import DEFAULT_LAKE
from ..daemon.run_request import TINY, RunOptions
from ..lake.query.forms import FormError
from .options import (
    AnyRun,
    DocumentOutput,
    Lake,
    Output,
)

if TYPE_CHECKING:
    from ...configs.schema import RunConfig


NO_OPTIONS = RunOptions()


def show_config(
    name: AnyRun = None,
    *,
    options: Annotated[RunOptions, "config recipe prompts policy critic settings"] = NO_OPTIONS,
    every: Annotated[
        bool, typer.Option("--defaults", help="Also show settings at their default.")
    ] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="List every field that can be set.")
    ] = False,
    lake: Lake = DEFAULT_LAKE,
    out: DocumentOutput,
) -> None:
    """Print the settings of a run, or of a run to come.

    With options of `run`: what these would give it. The YAML can be loaded again.
    """
    from ...configs.show import as_yaml, nest_fields, set_fields, set_secrets

    if schema:
        _print_schema(out)
        return
    title, found, sources = _find_config(lake, name, options)
    shown = set_fields(found, every=every)
    used = {f.path: source for f in shown if (source := sources.get(f.path))}
    rest = "" if every else "; other settings have their defaults (--defaults shows them)"
    hidden = "".join(f"# {path} is set, and not shown\n" for path in set_secrets(found))
    out.document(
        {"of": title, "config": nest_fields(shown), "sources": used},
        lambda: typer.echo(f"# {title}{rest}\n{hidden}{as_yaml(shown, sources)}", nl=False),
    )


def diff_configs(
    first: Annotated[str, typer.Argument(help="A run, a preset, or a YAML file.", metavar="A")],
    second: Annotated[str, typer.Argument(help="Another run, preset or YAML file.", metavar="B")],
    *,
    lake: Lake = DEFAULT_LAKE,
    out: DocumentOutput,
) -> None:
    """Compare two configurations field by field."""
    import polars as pl

    from ...configs.show import differences

    one, other = _both(lake, first, second)
    names = (first, second) if first != second else ("A", "B")
    rows = [
        {"field": d.path, names[0]: d.first, names[1]: d.second, "effect": d.effect}
        for d in differences(one, other)
    ]
    columns = dict.fromkeys(("field", *names, "effect"), pl.String)
    out.rows(pl.DataFrame(rows, schema=columns))


def _print_schema(out: Output) -> None:
    import polars as pl

    from ...configs.describe import every_field
    from ...configs.show import flow

    rows = [
        {
            "field": f"{field.path}{f' ({field.recipe})' if field.recipe else ''}",
            "type": field.kind,
            "default": flow(plain_default(field.default)),
            "range": field.range,
            "effect": field.effect,
            "description": field.description,
        }
        for field in every_field()
    ]
    out.rows(pl.DataFrame(rows))


def recipes(*, out: DocumentOutput) -> None:
    """List the recipes that `run --recipe` takes."""
    from ..recipes import recipe_table

    out.rows(recipe_table())


def plain_default(value: object) -> object:
    """Return a default as a YAML value."""
    from pydantic import BaseModel

    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return list(value) if isinstance(value, tuple) else value  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _find_config(
    lake: Path, name: str | None, options: RunOptions
) -> "tuple[str, RunConfig, dict[str, str]]":
    """Return a title, the configuration, and the source of each setting, empty for a run."""
    from ...configs.load import load_with_sources
    from ...stores.lake import run_names

    given = options != NO_OPTIONS
    if given and name is not None:
        raise FormError(f"{name} is a run, which has its settings: leave out the options of `run`")
    if name is not None or (not given and run_names(lake)):
        title, found = _of_run(lake, name)
        return title, found, {}
    chosen = options.in_lake(lake)
    found, sources = load_with_sources(chosen.preset, chosen.recipe, chosen.overrides, os.environ)
    title = f"{chosen.preset or TINY} with recipe {found.recipe.name}"
    return title, found, dict(sources)


def _of_run(lake: Path, name: str | None) -> "tuple[str, RunConfig]":
    from ..lake.query.runs import open_run
    from ..lake.trace.published_model import configuration

    with closing(open_run(lake, name)) as run:
        return f"run {run.folder.name}", configuration(run)


def _both(lake: Path, first: str, second: str) -> "tuple[RunConfig, RunConfig]":
    """Return two configurations; a preset takes the recipe of a run that it is compared with."""
    from ...configs.load import load_config
    from ...stores.lake import run_names

    runs = {name: _of_run(lake, name)[1] for name in (first, second) if name in run_names(lake)}
    recipe = next((found.recipe.name for found in runs.values()), None)
    one, other = (
        runs[name] if name in runs else load_config(name, recipe, (), os.environ)
        for name in (first, second)
    )
    return one, other
