"""The budget of a run, and the prices of its models.

The budget is reserved before it is spent and counted over crashes; at its end the run stops.
It keeps two accounts. A unit begins only if its expected cost fits together with the expected
cost of the open units, so that these can finish first. A slice of requests is sent only if its
maximal cost fits together with the costs spent and reserved. The journal records the reservation
before the slice is sent, and replaces it by the actual cost when the replies are kept. After a
crash, the reservations of the slices in flight count as spent.
"""

import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...configs.schema import ConfigError, ModelPrice, RunConfig
from ...policies.engines.engine import Completion, Request
from ...policies.engines.token_count import BYTES_A_TOKEN
from ...stores.journal import KeptSlice
from ...stores.journal_reader import Cost
from ...stores.lake import RunWriter
from ...stores.sealed import size_of
from .models import Served
from .reporter import UnitStats
from .stop import Stopped

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


GIB = 1 << 30
DISK_EVERY_S = 1.0
DISK_SHARE = 0.02
"""How often a run's folder is measured, and the largest share of time this may take."""


@dataclass(kw_only=True)
class CostEstimator:
    """The cost of requests of one kind in this process.

    `requests` counts requests, `calls` also repetitions; `size` is the bytes of their prompts.
    """

    requests: int = 0
    calls: int = 0
    size: int = 0
    prompt_tokens: int = 0
    tokens: int = 0

    def learn(
        self, requests: Sequence[Request], answers: Sequence[Completion], *, again: bool
    ) -> None:
        """Add the cost of requests."""
        self.requests += 0 if again else len(requests)
        self.calls += len(requests)
        self.size += _size(requests)
        self.prompt_tokens += sum(answer.prompt_tokens for answer in answers)
        self.tokens += sum(answer.completion_tokens for answer in answers)

    def expected_tokens(self, requests: Sequence[Request], longest: int) -> tuple[int, int, int]:
        """Return the expected prompt tokens, completion tokens and calls, repetitions included."""
        times = self.calls / self.requests if self.requests else 1.0
        density = self.prompt_tokens / self.size if self.size else 1 / BYTES_A_TOKEN
        drawn = self.tokens / self.calls if self.calls else float(longest)
        prompts = times * density * _size(requests)
        calls = times * len(requests)
        return math.ceil(prompts), math.ceil(drawn * calls), math.ceil(calls)


def _size(requests: Sequence[Request]) -> int:
    """Return the bytes of the requests' messages."""
    return sum(len(message.content.encode()) for r in requests for message in r.messages)


class BudgetReachedError(Stopped):
    """A limit does not leave room for the next unit; the run can be resumed with a higher one."""


class Budget:
    """The cost of a run: spent, reserved for requests in flight, and expected of open units.

    `elapsed` gives the seconds for which stages have been at work in this process.
    `experience` is what requests have cost so far, by their kind. Hold `deciding` from the check
    that a cost fits until its reservation, because several stages spend at the same time.
    """

    def __init__(
        self,
        store: RunWriter,
        config: Callable[[], RunConfig],
        elapsed: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._store = store
        self._journal = journal = store.journal
        self._config = config
        self._mutex = threading.Lock()
        self.deciding = threading.RLock()
        self._under_way: dict[str, dict[str, Cost]] = {}
        self._open: dict[str, Cost] = {}
        self._spent = journal.total_cost()
        self._kept = journal.kept_replies()
        self._seconds_before = journal.seconds()
        self._elapsed = elapsed
        self._disk_gib = 0.0
        self._measure_disk_at = 0.0
        self.experience = defaultdict[Hashable, CostEstimator](CostEstimator)
        self.reached: BudgetReachedError | None = None

    @property
    def spending(self) -> bool:
        """Whether units are open that may cost less than expected."""
        return bool(self._open)

    @property
    def in_flight(self) -> bool:
        """Whether requests are in flight that may cost less than was reserved for them."""
        return any(most != Cost() for most in self._reserve_total())

    @property
    def limited(self) -> bool:
        """Whether the cost of requests is limited."""
        limits = self._config().budget
        return (limits.tokens, limits.judge_calls, limits.money) != (None, None, None)

    def check(self) -> None:
        """Raise the error that stopped the admission of units, if any."""
        if self.reached is not None:
            raise self.reached
        self.require_time_and_room()

    def require_time_and_room(self) -> None:
        """Stop the run if its hours or its disk are used up.

        Raises:
            BudgetReachedError: naming the limit.
        """
        if (reached := self.check_limits()) is not None:
            raise reached

    def expects(self, cost: Cost) -> bool:
        """Whether `cost` fits together with the spent cost and the open units' expected cost."""
        return self._excess(cost, self._open.values()) is None

    def fits(self, most: Cost) -> bool:
        """Whether `most` fits together with the spent and the reserved cost."""
        return self._excess(most, self._reserve_total()) is None

    def refuse(self, most: Cost) -> None:
        """Note which limit keeps `most` out."""
        excess = self._excess(most, self._reserve_total())
        if excess is not None:
            self.reached = BudgetReachedError(excess)

    def open(self, unit: str, expected: Cost) -> None:
        """Note that a unit begins, and its expected cost."""
        with self._mutex:
            self._open[unit] = expected

    def reserve(self, unit: str, most: Cost, *, slice_: str = "") -> None:
        """Reserve the maximal cost of requests; also in the journal, if anything is limited."""
        with self._mutex:
            self._under_way.setdefault(unit, {})[slice_] = most
        if self.limited:
            self._store.when_there_is_room(lambda: self._journal.reserve(unit, most, slice_=slice_))

    def has_kept(self, unit: str) -> bool:
        """Whether the journal keeps replies of an unfinished unit."""
        return unit in self._kept

    def keep(self, unit: str, slice_: str, cost: Cost, replies: str) -> None:
        """Keep the replies to a slice of a unit's requests, and replace its reservation."""
        self._store.keep(KeptSlice(unit=unit, slice_=slice_, cost=cost, replies=replies))
        with self._mutex:
            self._under_way.get(unit, {}).pop(slice_, None)
            self._kept[unit] = self._kept.get(unit, Cost()) + cost
            self._open[unit] = self._open.get(unit, Cost()) - cost
            self._spent += cost

    def settle(self, unit: str, cost: Cost) -> None:
        """Replace a unit's reservations and the cost of its kept replies by its final cost."""
        with self._mutex:
            self._under_way.pop(unit, None)
            self._open.pop(unit, None)
            self._spent += cost - self._kept.pop(unit, Cost())

    def check_limits(self) -> BudgetReachedError | None:
        """Return the error of the limit of hours or disk that is reached; cheap to call often."""
        limits = self._config().budget
        for name, limit, measure in (
            ("hours", limits.hours, self._hours_used),
            ("disk_gib", limits.disk_gib, self._disk_used),
        ):
            if limit is not None and (used := measure()) >= limit:
                return BudgetReachedError(
                    f"budget.{name} is {limit:g}, and {used:.4g} are used up{_raise(name)}"
                )
        return None

    def _hours_used(self) -> float:
        return (self._seconds_before + self._elapsed()) / 3600

    def _disk_used(self) -> float:
        """Return the size of the run's folder in GiB, measured a moment ago."""
        with self._mutex:
            began = time.monotonic()
            if began >= self._measure_disk_at:
                self._disk_gib = size_of(self._journal.folder) / GIB
                took = time.monotonic() - began
                self._measure_disk_at = began + max(DISK_EVERY_S, took / DISK_SHARE)
            return self._disk_gib

    def _reserve_total(self) -> list[Cost]:
        with self._mutex:
            return [most for slices in self._under_way.values() for most in slices.values()]

    def _excess(self, cost: Cost, others: Iterable[Cost]) -> str | None:
        limits = self._config().budget
        with self._mutex:
            spent = self._spent
            total = sum(others, spent) + cost
        for name, used, needed, limit in (
            ("tokens", spent.tokens, total.tokens, limits.tokens),
            ("judge_calls", spent.judge_calls, total.judge_calls, limits.judge_calls),
            ("money", round(spent.money, 4), total.money, limits.money),
        ):
            if limit is not None and needed > limit:
                spent_text = f"budget.{name} is {limit}, {used} are spent"
                return f"{spent_text}, and the next request may not fit{_raise(name)}"
        return None


def _raise(name: str) -> str:
    return f": raise it with `lpfloop resume RUN --set budget.{name}=…`"


def cost_of(advance: UnitStats, *, judge: bool) -> Cost:
    """Return the cost of a unit's work."""
    return Cost(
        tokens=advance.tokens + advance.prompt_tokens,
        judge_calls=advance.calls if judge else advance.judge_calls,
        money=advance.money,
    )
