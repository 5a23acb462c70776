"""Python processes that start at once: forks of a process that has already imported their modules.

Imports take most of the time of a command or a short training. `program` makes a program that
replaces `sys.executable`: if the loop starts a command, worker, trainer or launcher with it, a
server forks a child, which becomes `python -m MODULE` with the arguments, environment, folder and
open files of the call; the real interpreter runs everything else. The program itself stays as a
small process, which passes signals on, ends as the child does, and kills it if it is killed.

A server starts at its first use, serves all processes of a test run, and ends with it.
"""

import marshal
import os
import shlex
import sys
from pathlib import Path

INTERPRETER = sys.executable
CLIENT = Path(__file__).with_name("preloaded_client.py")


def make_program(folder: Path, parent: int) -> Path:
    """Write the program into a folder; its servers end with the process `parent`.

    Several processes may do so at once.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    write(folder / "parent", str(parent).encode())
    write(folder / "environment", marshal.dumps(dict(os.environb)))
    program = folder / "python"
    command = shlex.join([INTERPRETER, "-IS", str(CLIENT), str(folder)])
    write(program, f'#!/bin/sh\nexec {command} "$@"\n'.encode())
    return program


def write(path: Path, data: bytes) -> None:
    """Write a file atomically."""
    draft = path.with_name(f"{path.name}-{os.getpid()}")
    draft.write_bytes(data)
    draft.chmod(0o700)
    draft.replace(path)
