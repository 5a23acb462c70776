"""The disk operations of durable.py, step by step, for tests.

Each step has a failpoint before and after it, `PURPOSE.KIND.before` and `.after`, and is reported
to observers once it succeeded: the power-loss test replays these to every state a crash may leave.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .failpoints import reach


@dataclass(frozen=True, slots=True)
class Operation:
    """One step on `path`, which was moved to `target` or got `data`."""

    purpose: str
    kind: str
    path: Path
    target: Path | None = None
    data: bytes = b""


observers: list[Callable[[Operation], None]] = []


@contextmanager
def operation(
    purpose: str,
    kind: str,
    path: Path,
    *,
    target: Path | None = None,
    data: bytes | memoryview = b"",
) -> Generator[None]:
    """Wrap the body, which does one step, in its failpoints, and report it."""
    reach(f"{purpose}.{kind}.before")
    yield
    for observer in observers:
        observer(Operation(purpose, kind, path, target, bytes(data)))
    reach(f"{purpose}.{kind}.after")
