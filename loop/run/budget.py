"""The budget of a run: reserved before it is spent, counted over crashes, a clean stop at its end.

A unit begins only if all that it may cost fits. What a slice of its requests may cost is reserved
in the journal before it leaves, and replaced by what it did cost when its replies are kept. A crash
leaves the reservations of what was in flight, which count as spent.
"""

import threading
from collections.abc import Callable, Iterable

from ...configs.schema import PriceConfig, RunConfig
from ...policies.engines.engine import Request
from ...stores.journal_reader import Cost
from ...stores.lake import RunWriter
from ...stores.sealed import size_of
from .reporter import Advance
from .stop import Stopped

MILLION = 1e6
GIB = 1 << 30
TEMPLATE_TOKENS = 16
"""Tokens that a chat template may put around one message, for the upper bound of a prompt."""


class BudgetReachedError(Stopped):
    """A limit does not leave room for the next unit; the run can be resumed with a higher one."""


class Budget:
    """What a run has spent, reserved, and may still spend."""

    def __init__(self, store: RunWriter, config: Callable[[], RunConfig]) -> None:
        self._store = store
        self._journal = journal = store.journal
        self._config = config
        self._mutex = threading.Lock()
        self._reserved: dict[str, Cost] = {}
        self._spent = journal.spent()
        self._kept = journal.kept()
        self._seconds = sum(stage.seconds for stage in journal.stages())
        self.reached: BudgetReachedError | None = None

    @property
    def spending(self) -> bool:
        """Whether units are open, whose end may leave more than was set aside for them."""
        return bool(self._reserved)

    def check(self) -> None:
        """Raise what stopped the admission of units, if something did."""
        if self.reached is not None:
            raise self.reached

    def admits(self, cost: Cost) -> bool:
        """Whether `cost` fits beside what is spent and reserved."""
        return self._excess(cost) is None

    def refuse(self, cost: Cost) -> None:
        """Note which limit keeps `cost` out."""
        excess = self._excess(cost)
        if excess is not None:
            self.reached = BudgetReachedError(excess)

    def set_aside(self, unit: str, cost: Cost) -> None:
        """Set aside, in memory, all that a unit may still cost: it can be finished once begun."""
        with self._mutex:
            self._reserved[unit] = cost

    def reserve(self, unit: str, cost: Cost, *, slice_: str = "") -> None:
        """Note in the journal what is about to be spent, if anything is limited."""
        limits = self._config().budget
        if (limits.tokens, limits.judge_calls, limits.money) != (None, None, None):
            self._store.when_there_is_room(lambda: self._journal.reserve(unit, cost, slice_=slice_))

    def has_kept(self, unit: str) -> bool:
        """Whether the journal keeps replies of a unit that is not whole."""
        return unit in self._kept

    def keep(self, unit: str, slice_: str, cost: Cost, replies: str) -> None:
        """Keep the replies to a slice of a unit's requests, and settle what they cost."""
        self._store.when_there_is_room(lambda: self._journal.keep(unit, slice_, cost, replies))
        with self._mutex:
            self._kept[unit] = self._kept.get(unit, Cost()) + cost
            self._reserved[unit] = self._reserved.get(unit, Cost()) - cost
            self._spent += cost

    def settle(self, unit: str, cost: Cost) -> None:
        """Replace what was set aside for a unit, and counted for its replies, by what it cost."""
        with self._mutex:
            self._reserved.pop(unit, None)
            self._spent += cost - self._kept.pop(unit, Cost())

    def add_seconds(self, seconds: float) -> None:
        """Count wall time."""
        self._seconds += seconds

    def require_time_and_room(self) -> None:
        """Stop the run if its hours or its disk are used up.

        Raises:
            BudgetReachedError: naming the limit.
        """
        limits = self._config().budget
        hours = self._seconds / 3600
        if limits.hours is not None and hours >= limits.hours:
            raise BudgetReachedError(_sentence("hours", f"{hours:.2f}", limits.hours))
        if limits.disk_gib is not None:
            used = size_of(self._journal.folder) / GIB
            if used >= limits.disk_gib:
                raise BudgetReachedError(_sentence("disk_gib", f"{used:.3f}", limits.disk_gib))

    def _excess(self, cost: Cost) -> str | None:
        limits = self._config().budget
        with self._mutex:
            total = sum(self._reserved.values(), self._spent) + cost
            spent = self._spent
        for name, used, wanted, limit in (
            ("tokens", spent.tokens, total.tokens, limits.tokens),
            ("judge_calls", spent.judge_calls, total.judge_calls, limits.judge_calls),
            ("money", round(spent.money, 4), total.money, limits.money),
        ):
            if limit is not None and wanted > limit:
                return _sentence(name, str(used), limit)
        return None


def _sentence(name: str, used: str, limit: float) -> str:
    option = f"--max-{name.replace('_', '-')}"
    return (
        f"budget.{name} is {limit}, {used} are spent, and the next unit may not fit: raise it with "
        f"`lpfloop resume RUN {option} …`"
    )


def price(prices: PriceConfig, *, judge: bool, prompt_tokens: int, tokens: int) -> float:
    """Return the money that tokens cost."""
    prompt = prices.critic_prompt if judge else prices.policy_prompt
    completion = prices.critic_completion if judge else prices.policy_completion
    return (prompt_tokens * prompt + tokens * completion) / MILLION


def upper_bound(
    prices: PriceConfig,
    requests: Iterable[Request],
    max_tokens: int,
    *,
    judge: bool,
    times: int = 1,
) -> Cost:
    """Return what requests can cost at most, each asked up to `times` times.

    A byte of the prompt is at most one token.
    """
    wanted = list(requests)
    prompt_tokens = times * sum(
        len(m.content.encode()) + TEMPLATE_TOKENS for r in wanted for m in r.messages
    )
    tokens = times * len(wanted) * max_tokens
    return Cost(
        tokens=prompt_tokens + tokens,
        judge_calls=times * len(wanted) if judge else 0,
        money=price(prices, judge=judge, prompt_tokens=prompt_tokens, tokens=tokens),
    )


def actual(prices: PriceConfig, advance: Advance, *, judge: bool) -> Cost:
    """Return what a committed unit cost."""
    return Cost(
        tokens=advance.tokens + advance.prompt_tokens,
        judge_calls=advance.calls if judge else 0,
        money=price(
            prices, judge=judge, prompt_tokens=advance.prompt_tokens, tokens=advance.tokens
        ),
    )
