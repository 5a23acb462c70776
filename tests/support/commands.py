"""Calling `lpfloop` as a process of its own, on a small share of the tiny world."""

import os
import subprocess
import sys
from pathlib import Path

SMALL = {
    "LPFLOOP_PROMPTS__PER_ITERATION": "120",
    "LPFLOOP_PROMPTS__EVALUATED": "80",
    "LPFLOOP_PROMPTS__DECIDING": "80",
    "LPFLOOP_PROMPTS__CHUNK": "15",
    "LPFLOOP_TRAINING__MIN_PAIRS": "4",
    "LPFLOOP_TRAINING__DPO__LEARNING_RATE": "2e-4",
}
"""A fifth of the prompts, and larger steps, since there are few: enough to see M_1 improve."""
LIMIT_S = 1800
"""More than two iterations on real models take on a very busy machine."""


def start(
    lake: Path, *arguments: object, cwd: Path | None = None, python: str | None = None
) -> subprocess.Popen[str]:
    """Start `lpfloop` with a small world, in a session of its own."""
    return subprocess.Popen(
        [python or sys.executable, "-m", "lpfloop", *map(str, arguments)],
        env={**os.environ, **SMALL, "LPFLOOP_LAKE": str(lake)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=cwd,
    )


def call(
    lake: Path, *arguments: object, cwd: Path | None = None, python: str | None = None
) -> tuple[int, str, str]:
    """Run `lpfloop` to its end; return its exit code, stdout and stderr."""
    process = start(lake, *arguments, cwd=cwd, python=python)
    stdout, stderr = process.communicate(timeout=LIMIT_S)
    return process.returncode, stdout, stderr
