"""The prices of models: a table in YAML, and configured prices.

A file (`configs.pools`) lists `prices`, each with the `name` under which a model is served, and the
price of a million tokens of its prompts and of its completions. Shipped is `example`.
"""

from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from .pools import Pools
from .schema import ModelPrice, PriceConfig

TABLES = Pools(folder=Path(__file__).parent / "prices", item="price")


class PricedModel(ModelPrice):
    """A model's price as a table lists it."""

    name: str = Field(min_length=1)


def prices_of(config: PriceConfig) -> Mapping[str, ModelPrice]:
    """Return the configured prices by the models' names; `models` takes precedence over the table.

    Raises:
        ConfigError: if the table cannot be read; names the file, and the line or the entry.
    """
    listed = [] if config.table is None else TABLES.read(TABLES.place(config.table), PricedModel)
    return {model.name: model for model in listed} | config.models
