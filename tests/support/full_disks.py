"""Runs on a disk that is full, in children: waiting for room, told to stop meanwhile."""

import logging
import os
import resource
import signal
from pathlib import Path

from crashing import RUN, Silent

from lpfloop.configs.schema import RunConfig
from lpfloop.loop.daemon.loop import Job, run_loop
from lpfloop.loop.run.stop import Stopped, StopSignal
from lpfloop.stores import committer
from lpfloop.stores.failpoints import armed

LIMIT = 100
"""Bytes that a file may have under `limited`: no part and no change of the journal fits."""


class _Stopper(logging.Handler):
    """Asks for a stop when the store first says that it waits for room."""

    asked = False

    def emit(self, record: logging.LogRecord) -> None:
        if not self.asked and "the disk is full" in record.getMessage():
            self.asked = True
            os.kill(os.getpid(), signal.SIGTERM)


def stopped_while_full(lake: Path, *, config: RunConfig, limited: bool) -> None:
    """Turn the loop until it waits for room, stop it by a signal, and leave how it ended.

    With `limited` no file may grow any more from the fifth stage on (RLIMIT_FSIZE).
    """
    committer.RETRY_S = 0.001
    logging.getLogger("lpfloop.store").addHandler(_Stopper())
    stop = StopSignal()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(_: str) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, hard))

    ended = "whole"
    with stop.on_signals(), armed({"stage.planned#5": fill} if limited else {}):
        try:
            run_loop(Job(config=config, lake=lake, name=RUN), Silent(), stop)
        except Stopped:
            ended = "stopped"
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    (lake / "ended").write_text(ended)
