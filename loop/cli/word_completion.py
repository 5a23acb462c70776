"""Shell completion of the word that is being typed: names of runs, recipes, presets, fields.

A shell asks at each press of the Tab key: only folder names and the schema are read, and nothing is
ever written or printed. Unreadable folders offer no words.
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import typer

DEFAULT = Path("lake")


def run_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the runs of the lake that the command line names."""
    lake = ctx.params.get("lake")
    folder = (lake if isinstance(lake, Path) else DEFAULT) / "runs"
    with suppress(OSError):
        return _matching_names(
            sorted(path.name for path in folder.iterdir() if path.is_dir()), incomplete
        )
    return []


def recipe_names(incomplete: str) -> list[str]:
    """Return the shipped recipes."""
    from ...configs.recipe_names import recipe_classes

    return _matching_names(recipe_classes(), incomplete)


def preset_names(incomplete: str) -> list[str]:
    """Return the shipped presets, and the YAML files of this folder."""
    from ...configs.read import presets

    found = presets()
    with suppress(OSError):
        found += sorted(path.name for path in Path().glob("*.y*ml"))
    return _matching_names(found, incomplete)


def field_names(incomplete: str) -> list[str]:
    """Return the fields that `--set` takes, with the `=` that follows; secrets are left out."""
    from ...configs.describe import settable

    return _matching_names(
        (f"{field.path}=" for field in settable() if not field.secret), incomplete
    )


def live_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the words that may follow `ctl`: a run, an action, then the live fields."""
    words: list[str] = ctx.params.get("words") or []
    action = next((word for word in words if word in {"get", "set"}), None)
    if action is None:
        return [*_matching_names(("get", "set"), incomplete), *run_names(ctx, incomplete)]
    from ...configs.describe import settable

    end = "=" if action == "set" else ""
    live = (f"{field.path}{end}" for field in settable() if field.effect == "live")
    return _matching_names(live, incomplete)


def _matching_names(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
