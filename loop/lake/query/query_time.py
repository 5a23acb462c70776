"""A limit on the time that a query computes; the time of its reader does not count."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

AGAIN_S = 0.2
"""An interruption is lost if it comes before the query starts, so it is repeated."""


@dataclass(slots=True)
class TimeLimit:
    """Interrupts queries once `seconds` have been spent in all; 0 disables the limit."""

    interrupt: Callable[[], None]
    seconds: float
    spent: float = field(default=0.0, init=False)
    _began: float = field(default=0.0, init=False)
    _left: threading.Event | None = field(default=None, init=False)
    _over: bool = field(default=False, init=False)

    @property
    def told(self) -> str | None:
        """The message for an interrupted query; None if something else interrupted it."""
        if not self._over:
            return None
        return (
            f"the query was stopped after {self.seconds:g} s: ask for less, or give it longer "
            "with --timeout SECONDS (0: no limit; `timeout=` in Python)"
        )

    def __enter__(self) -> Self:
        """Begin to count."""
        self._began = time.monotonic()
        if self.seconds:
            left = self._left = threading.Event()
            rest = self.seconds - self.spent
            threading.Thread(target=self._watch, args=(left, rest), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop counting."""
        self.spent += time.monotonic() - self._began
        if self._left is not None:
            self._left.set()

    def _watch(self, left: threading.Event, rest: float) -> None:
        wait = max(rest, 0.0)
        while not left.wait(wait):
            self._over, wait = True, AGAIN_S
            self.interrupt()
