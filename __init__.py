"""A loop that improves a language model by its own feedback, and keeps every sentence of evidence.

This module is the public Python interface. It imports nothing heavy: neither torch nor an engine,
and Polars only when a run is opened.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .loop.lake.library import ReadOnlyRun

__all__ = ["__version__", "open"]

__version__ = "0.1.0"


def open(  # noqa: A001 -- `lpfloop.open` reads as what it does
    run: "str | Path | None" = None, *, lake: "str | Path | None" = None
) -> "ReadOnlyRun":
    """Open a run for reading, also while it is written.

    `run` is the folder of a run, or its name in a lake (a folder, or `s3://BUCKET/PREFIX`; by
    default `$LPFLOOP_LAKE`, or `./lake`); without one, the run written last. The result can stand
    in a `with` statement.

    Raises:
        NoSuchRunError: if there is no such run, naming those that there are.
    """
    from .loop.lake.library import open_folder_or_name

    return open_folder_or_name(run, lake)
