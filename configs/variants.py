"""The recipes that a configuration can name, as the schema's union lists them."""

from functools import cache

from .describe import sections_of
from .schema import RunConfig


@cache
def variants() -> dict[str, frozenset[str]]:
    """Return the names of the recipes, each with the names of its settings."""
    kinds = sections_of(RunConfig.model_fields["recipe"])
    return {kind.model_fields["name"].default: frozenset(kind.model_fields) for kind in kinds}
