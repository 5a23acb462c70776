"""What a trainer is told while it runs: how often to save, and that it is to save and end.

The parent leaves its orders in a file in the work folder; the child's first process looks there
after every step. Orders decide when a checkpoint is made, and a resume from any checkpoint gives
the same weights: so they are no part of the job, and may change while it runs.
"""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from ...stores.durable import write_file
from .trainer_job import read_json

ORDERS = "orders.json"
MINUTES = 10.0
"""The default time between checkpoints: what a crash may cost."""

Turn = Literal["go on", "save", "end"]
"""What to do after a step; to `end` is to save first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """`checkpoint_s`: seconds of training between checkpoints; `end`: save, then end."""

    checkpoint_s: float = 60 * MINUTES
    end: bool = False


def write_orders(work: Path, orders: Orders) -> None:
    """Leave the orders where the child finds them."""
    write_file(work / ORDERS, json.dumps(asdict(orders)).encode())


def read_orders(work: Path) -> Orders:
    """Return the orders, or the default ones where nobody left any."""
    told = read_json(work / ORDERS)
    return Orders() if told is None else Orders(**told)


class Pace:
    """When a trainer saves. The time that saving takes does not count."""

    def __init__(self, work: Path, now: Callable[[], float] = time.monotonic) -> None:
        self._work = work
        self._now = now
        self._since = now()

    def turn(self) -> Turn:
        """Say what to do after a step."""
        orders = read_orders(self._work)
        if orders.end:
            return "end"
        return "save" if self._now() - self._since >= orders.checkpoint_s else "go on"

    def saved(self) -> None:
        """Note that a checkpoint has just been made."""
        self._since = self._now()
