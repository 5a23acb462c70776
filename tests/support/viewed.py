"""The viewer as people have it: `lpfloop view` as a process, on a lake."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

LIMIT_S = 300


@dataclass(frozen=True, slots=True)
class Viewer:
    """A running viewer: the address that it printed, and what its pages' addresses begin with."""

    entry: str

    @property
    def own(self) -> str:
        """What the addresses of its pages begin with."""
        return self.entry.partition("?")[0].rstrip("/")


@contextmanager
def viewing(lake: Path, *arguments: str) -> Iterator[Viewer]:
    """Start the viewer of a lake; it is ended as Ctrl-C does, and must end cleanly."""
    with subprocess.Popen(
        [sys.executable, "-m", "lpfloop", "view", *arguments, "--lake", str(lake)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        try:
            entry = process.stdout.readline().strip()
            assert entry.startswith("http://127.0.0.1:"), process.stderr.read()
            yield Viewer(entry)
        finally:
            process.send_signal(signal.SIGINT)
            talk = process.communicate(timeout=LIMIT_S)[1]
        assert process.returncode == 0, talk
        assert "Traceback" not in talk
