"""Handing a run to a scheduler, by the scheduler's own program."""

import shutil
import subprocess
import sys

from ...configs.schema import ConfigError

PROGRAMS = {
    "slurm": ("sbatch",),
    "ray": (sys.executable, "-P", "-"),
}
"""What reads the text of a scheduler from its standard input."""


def submit(scheduler: str, text: str) -> str:
    """Hand a text to a scheduler; return what that says.

    Raises:
        ConfigError: if its program is not here, or refuses it.
    """
    program, *words = PROGRAMS[scheduler]
    if shutil.which(program) is None:
        raise ConfigError(
            f"launch {scheduler}: there is no `{program}` here; --print shows what it would be "
            "handed, to be submitted elsewhere"
        )
    done = subprocess.run(
        [program, *words], input=text, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split()[-60:])
        raise ConfigError(f"launch {scheduler}: `{program}` refused it: {said}")
    return done.stdout
