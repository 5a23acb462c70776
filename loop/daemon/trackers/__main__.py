"""The process of one tracker: reads a batch, gives it to the library, ends."""

import sys
from importlib import import_module
from pathlib import Path

from .tracked_batch import SendsBatch, read_batch


def main(name: str) -> None:
    """Tell the tracker `name` of the batch on standard input."""
    batch = read_batch(sys.stdin.read())
    send: SendsBatch = import_module(f".{name}_adapter", __package__).send
    send(batch, Path(batch.folder) / name)


if __name__ == "__main__":
    main(sys.argv[1])
