"""The process that works on a run for a Python program: see `loop/daemon/child_run.py`."""

import json
import os
import signal
import sys
import threading
from collections.abc import Mapping
from typing import Any

from ...stores.address import lake_folder
from ..daemon.child_run import job_of
from .common import outcome
from .session import stop_signal, turn

INPUT = 0
LONGEST = 5000
"""A pipe takes this much of a sentence before anybody reads it."""


def main() -> None:
    """Do the job from standard input; report how it ended to the pipe that the argument names."""
    from ...configs.secrecy import hide_own_key
    from ..run.terminal import guard_streams

    hide_own_key()
    guard_streams()
    ends = int(sys.argv[1])
    os.set_inheritable(ends, False)  # noqa: FBT003 -- as it is called
    with os.fdopen(INPUT, "rb", buffering=0, closefd=False) as source:
        order = json.loads(source.readline())
    threading.Thread(target=_stop_with_the_parent, daemon=True).start()
    try:
        _work(order, ends)
    finally:
        sys.stderr.flush()
    # All is closed and committed. A thread that a library left behind must not keep the process.
    os._exit(0)


def _work(order: Mapping[str, Any], ends: int) -> None:
    try:
        job = job_of(order, lake_folder(order["lake"]), os.environ)
        turn(job, stop_signal(job.config, lift_pause=order["lift_pause"]))
    except Exception as error:
        found = outcome(error)
        if found is None:
            raise
        end = {"exit": found.exit, "code": found.code, "said": found.message[:LONGEST]}
        os.write(ends, json.dumps(end).encode())


def _stop_with_the_parent() -> None:
    """Request a clean stop when the parent is gone: the input ends."""
    while os.read(INPUT, 1):
        pass
    os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    main()
