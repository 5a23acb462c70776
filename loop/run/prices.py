"""The prices of a run's models by name, and a check that none is missing."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...configs.schema import ConfigError, ModelPrice, RunConfig
from .models import Served

MILLION = 1e6
FREE = ModelPrice(prompt=0.0, completion=0.0)
"""The default price of a model that runs locally."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """The prices of a run's models by name; with `limited`, each model elsewhere must have one.

    `batch` is the share of the price that a request in a batch file costs.
    """

    models: Mapping[str, ModelPrice]
    limited: bool
    batch: float = 0.5

    @classmethod
    def of(cls, config: RunConfig) -> "Prices":
        """Return the prices of a run."""
        return cls(
            models=config.prices.models,
            limited=config.budget.money is not None,
            batch=config.prices.batch,
        )

    def require(self, models: Iterable[Served]) -> None:
        """Refuse models without a price while money is limited.

        Raises:
            ConfigError: naming the first of them.
        """
        for served in models:
            if self.limited and self.is_missing(served):
                raise ConfigError(
                    f"budget.money is set, and the model {served.name} lacks a price: give the "
                    "price of a million of its tokens, 0 if free: --set "
                    f"'prices.models={{{served.name}: {{prompt: 0.5, completion: 1.5}}}}'"
                )

    def is_missing(self, served: Served) -> bool:
        """Whether an endpoint serves the model and its price is unknown."""
        return served.is_elsewhere and self._stated_price(served) is None

    def money(self, served: Served, *, prompt_tokens: float, tokens: float) -> float:
        """Return the cost of tokens of a model."""
        price = self._stated_price(served) or FREE
        return (prompt_tokens * price.prompt + tokens * price.completion) / MILLION

    def _stated_price(self, served: Served) -> ModelPrice | None:
        return self.models.get(served.name) or self.models.get(served.location)
