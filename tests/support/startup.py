"""How long a fresh interpreter computes, against what every command of lpfloop must load.

The processor's time, since the clock's says how busy the machine is; the least of some runs, and
as a ratio, since one processor is twice as fast as another.
"""

import os
import resource
import subprocess
import sys
from collections.abc import Mapping

RUNS = 3
LIBRARIES = "import pydantic.main, typer.main, yaml"


def times_libraries(code: str, env: Mapping[str, str] | None = None) -> float:
    """Return how many times as long `code` computes as its libraries take to load."""
    bare = _least_s("", {})
    return (_least_s(code, env or {}) - bare) / (_least_s(LIBRARIES, {}) - bare)


def _least_s(code: str, env: Mapping[str, str]) -> float:
    return min(_computed_s(code, env) for _ in range(RUNS))


def _computed_s(code: str, env: Mapping[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    command = [sys.executable, "-c", code]
    subprocess.run(command, env={**os.environ, **env}, check=True, capture_output=True, cwd="/")
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
