"""The child of `train_model.train`, or one of its processes: it imports the trainers, then trains.

The imports take longer than a short training, so a child may be started before its job is known.
"""

import os
import sys
from pathlib import Path

from .trainers.launch import WAIT
from .workers.environment import without_garbage_collection


def awaited_job() -> str:
    """Return the path of the job that the parent sends as one line; "" if it ended before."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return ""
        line += byte
    return line.decode().rstrip("\n")


def main(path: str) -> int:
    """Run the job of a `job.json` in its work folder, or the one awaited; return the exit code."""
    with without_garbage_collection():
        from .run_job import run_job
    path = awaited_job() if path == WAIT else path
    return run_job(Path(path)) if path else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
