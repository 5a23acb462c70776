"""A limit on the time that a query computes; the time of its reader does not count."""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

AGAIN_S = 0.2
"""An interruption is lost if it comes before the query starts, so it is repeated."""


@dataclass(slots=True)
class TimeLimit:
    """Interrupts queries once `seconds` have been spent in all; 0 disables the limit."""

    interrupt: Callable[[], None]
    seconds: float
    spent: float = 0.0
    is_over: bool = False

    @property
    def message(self) -> str | None:
        """The message for an interrupted query; None if something else interrupted it."""
        if not self.is_over:
            return None
        return (
            f"the query was stopped after {self.seconds:g} s: ask for less, or give it longer "
            "with --timeout SECONDS (0: no limit; `timeout=` in Python)"
        )

    @contextmanager
    def counting(self) -> Generator[None]:
        """Count the time until the block ends, and interrupt the query if there is none left."""
        began, ended = time.monotonic(), threading.Event()
        if self.seconds:
            threading.Thread(target=self._watch, args=(ended,), daemon=True).start()
        try:
            yield
        finally:
            self.spent += time.monotonic() - began
            ended.set()

    def _watch(self, ended: threading.Event) -> None:
        wait = max(self.seconds - self.spent, 0.0)
        while not ended.wait(wait):
            self.is_over, wait = True, AGAIN_S
            self.interrupt()
