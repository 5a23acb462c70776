"""Python processes that start at once: forks of one that has imported what they need.

Most of what a command or a short training costs are imports. `program` makes one that stands for
`sys.executable`: what the loop starts by it (commands, workers, trainers and their launcher) a
server forks, which becomes `python -m MODULE` with its arguments, environment, folder and open
files; all else is left to the real interpreter. The program itself stays as a small process, which
passes signals on, ends as the child does, and takes it along if it is killed.

A server is started when it is first needed, serves all processes of a test run, and ends with it.
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
    """Write a file that is there as a whole or not at all."""
    draft = path.with_name(f"{path.name}-{os.getpid()}")
    draft.write_bytes(data)
    draft.chmod(0o700)
    draft.replace(path)
