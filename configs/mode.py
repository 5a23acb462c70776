"""Modes: defaults for everything that AlpacaFarm's paper and its code do differently.

A mode ranks below every other source, so a preset or a file that sets one of its fields keeps it.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import cast

from .read import Layer, Values, parse_yaml

MODES = Path(__file__).parent / "modes"
FIELD = "mode"


def modes() -> list[str]:
    """Return the names of the modes."""
    return sorted(path.stem for path in MODES.glob("*.yaml"))


def mode_layer(layers: Sequence[Layer], settings: Collection[str]) -> Layer | None:
    """Return the values of the mode that the last of `layers` names; of the recipe's, `settings`.

    None if no layer names a known one: validation reports an unknown name.
    """
    named = [layer.values[FIELD] for layer in layers if FIELD in layer.values]
    if not named or named[-1] not in modes():
        return None
    values = cast("Values", parse_yaml((MODES / f"{named[-1]}.yaml").read_text(encoding="utf-8")))
    recipe = cast("Values", values.pop("recipe"))
    kept = {name: value for name, value in recipe.items() if name in settings}
    return Layer(source=f"mode {named[-1]}", values={**values, "recipe": kept})
