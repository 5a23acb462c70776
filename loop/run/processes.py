"""Processes as the kernel shows them: which belong to whom, and whether one is still the same.

A process id is re-used; with its start time it names one process for ever.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
STATE, PARENT, START = 0, 1, 19
"""Positions in /proc/PID/stat after the name, which stands in brackets."""
ROUNDS = 3


def _stat(pid: int) -> list[str] | None:
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()


def start_ticks(pid: int) -> int | None:
    """Return when a process was started, in clock ticks since the machine's boot; None: gone."""
    stat = _stat(pid)
    return None if stat is None or stat[STATE] == "Z" else int(stat[START])


def children(pid: int) -> Iterator[int]:
    """Give the living descendants of a process, in whatever session or group they are."""
    parents = dict[int, int]()
    for entry in PROC.iterdir() if PROC.is_dir() else ():
        stat = _stat(int(entry.name)) if entry.name.isdigit() else None
        if stat is not None and stat[STATE] != "Z":
            parents[int(entry.name)] = int(stat[PARENT])
    above = {pid}
    while found := {child for child, parent in parents.items() if parent in above} - above:
        above |= found
        yield from found


def kill_children(pid: int) -> None:
    """Kill every descendant of a process, and those that they start meanwhile."""
    for _ in range(ROUNDS):
        found = list(children(pid))
        for child in found:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        if not found:
            return
