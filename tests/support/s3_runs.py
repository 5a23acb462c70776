"""Scripted runs on a lake in a bucket, in processes of their own."""

import os
from pathlib import Path

from crashing import RUN, look, loop
from s3 import environment

from lpfloop.configs.schema import RunConfig


def in_bucket(
    lake: Path, *, endpoint: str, config: RunConfig, name: str = RUN, fork: str | None = None
) -> None:
    """Turn the loop, in a process that has access to the bucket, and look what it made."""
    os.environ.update(environment(endpoint))
    loop(lake, config=config, name=name, fork=fork)
    look(lake, name=name)
