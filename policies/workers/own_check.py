"""A check that a user's reward function can be imported, made in a separate process.

As in a worker, the file's imports, perhaps torch, do not load into the caller's process.
"""

import subprocess
import sys

from ..engines.engine import EngineError
from ..engines.scorers import own_reward
from .environment import worker_environment

REFUSED = 2


def require_importable(place: str) -> None:
    """Refuse a function that a worker could not import.

    Raises:
        EngineError: with the reason.
    """
    tried = subprocess.run(
        [sys.executable, "-P", "-m", __name__, place],
        env=worker_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if tried.returncode == 0:
        return
    last = next((line for line in reversed(tried.stderr.splitlines()) if line.strip()), "")
    if tried.returncode == REFUSED:
        raise EngineError(last)
    raise EngineError(
        f"reward.model: {place}: importing it ends with exit code {tried.returncode}: {last}"
    )


def main(place: str) -> None:
    """Import a function, or print the reason of a failure as the last line of stderr."""
    try:
        own_reward(place)
    except EngineError as error:
        sys.stderr.write(f"\n{error}\n")
        sys.exit(REFUSED)


if __name__ == "__main__":
    main(sys.argv[1])
