"""Output to the terminal, which may have closed: a broken pipe does not stop the run."""

import io
import os
import sys
from contextlib import suppress
from typing import BinaryIO, TextIO, cast

import typer

from ...configs.secrecy import redact
from ..data.text import visible

STANDARD = (0, 1, 2)


class Unbreakable(io.TextIOBase):
    """A text stream that redacts secrets and drops text that it cannot write.

    A closed pipe, a full disk or a stream that was never open raises no error.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] -- read only
        """The encoding of the underlying stream."""
        return "utf-8" if self._stream is None else self._stream.encoding

    @property
    def buffer(self) -> BinaryIO:
        """The underlying stream for bytes; its users handle write errors themselves."""
        return io.BytesIO() if self._stream is None else self._stream.buffer

    def isatty(self) -> bool:
        """Whether the stream is a terminal."""
        return self._stream is not None and self._stream.isatty()

    def fileno(self) -> int:
        """Return the descriptor of the underlying stream.

        Raises:
            OSError: if it does not exist.
        """
        if self._stream is None:
            raise OSError("no stream")
        return self._stream.fileno()

    def writable(self) -> bool:
        """Return True: any text is accepted."""
        return True

    def write(self, text: str, /) -> int:
        """Write `text`, or drop it."""
        if self._stream is not None:
            with suppress(OSError):
                self._stream.write(redact(text))
        return len(text)

    def flush(self) -> None:
        """Flush the buffered text, or drop it."""
        if self._stream is not None:
            with suppress(OSError):
                self._stream.flush()


def guard_streams() -> None:
    """Make stdout and stderr unbreakable, for the whole process.

    Descriptors 0 to 2 that were closed are filled: else the journal got one of them, and a library
    that talks would write into it.
    """
    for number in STANDARD:
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = cast("TextIO", Unbreakable(sys.stdout))
    sys.stderr = cast("TextIO", Unbreakable(sys.stderr))


def say(text: str) -> None:
    """Print one sentence on the terminal, without control characters."""
    typer.echo(visible(redact(text)), err=True)
