"""Commands in a real terminal of 80 by 24, whose keys are pressed."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

ROWS, COLUMNS = 24, 80


class Terminal:
    """A process of `lpfloop` whose terminal this is; `screen` is all that it has written so far."""

    def __init__(self, *words: object, cwd: Path | None = None) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "lpfloop", *map(str, words)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            cwd=cwd,
            env={**os.environ, "TERM": "xterm-256color"},
        )
        os.close(slave)
        self.screen = ""

    def read_until(self, *texts: str, seconds: float = 300) -> None:
        """Read until one of the texts appeared after what was read before."""
        begin, end = len(self.screen), time.monotonic() + seconds
        while not any(text in self.screen[begin:] for text in texts):
            assert time.monotonic() < end, f"no {texts} in {self.screen[-3000:]!r}"
            if not self._read():
                assert any(text in self.screen[begin:] for text in texts), self.screen[-3000:]
                return

    def press(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode())

    def end(self, seconds: float = 300) -> int:
        """Read to the end; return the exit code."""
        end = time.monotonic() + seconds
        while self._read():
            assert time.monotonic() < end, self.screen[-3000:]
        os.close(self._master)
        return self.process.wait(seconds)

    def _read(self) -> bool:
        """Read what there is; return whether there may be more."""
        # Looked at first: what it wrote before it ended is there by then.
        runs = self.process.poll() is None
        ready, _, _ = select.select([self._master], [], [], 0.2)
        if not ready:
            return runs
        try:
            found = os.read(self._master, 65536)
        except OSError:  # Linux says so where the other side is closed
            return False
        self.screen += found.decode(errors="replace")
        return bool(found)
