"""A Slurm allocation on this machine: a fake `srun` starts its tasks here.

Each task has the variables that Slurm gives it and a pipe as its standard input, which ends with
srun's own; srun forwards SIGTERM to its tasks, and the first failing task ends all
(`--kill-on-bad-exit`). Unlike in Slurm, all nodes are this machine, and nothing confines the
tasks.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

KILL_S = 2.0
"""Seconds between SIGTERM and SIGKILL, like KillWait; all processes of a step get the latter."""


def allocate(monkeypatch: pytest.MonkeyPatch, folder: Path, nodes: int) -> None:
    """Put this process into an allocation of so many nodes."""
    folder.mkdir(exist_ok=True)
    program = folder / "srun"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", str(nodes))
    monkeypatch.setenv("SLURM_JOB_CPUS_PER_NODE", f"2(x{nodes})")
    monkeypatch.setenv("SLURMD_NODENAME", socket.gethostname())


def own_command(number: int, command: Sequence[str]) -> list[str]:
    """Return a node's command: all nodes share this machine's ports, but only the first opens one.

    OTHER_DISK=FROM:TO: on the other nodes, these paths lead to another disk.
    """
    if number == 0:
        return list(command)
    here, there = os.environ.get("OTHER_DISK", ":").split(":")
    moved = [part.replace(here, there) if here else part for part in command]
    if "--rdzv_backend" not in moved:
        return moved
    at = moved.index("--rdzv_backend")
    return [*moved[:at], "--machine_rank", str(number), "--rdzv_conf", "is_host=0", *moved[at:]]


def start(number: int, nodes: int, command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start the task of a node in a new session."""
    argv = own_command(number, command)
    told = {
        "SLURM_PROCID": str(number), "SLURM_NODEID": str(number), "SLURM_LOCALID": "0",
        "SLURM_NTASKS": str(nodes), "SLURM_STEP_ID": "0", "SLURMD_NODENAME": socket.gethostname(),
    }  # fmt: skip
    environment = {**os.environ, **told}
    return subprocess.Popen(argv, stdin=subprocess.PIPE, env=environment, start_new_session=True)


def hand_on(tasks: Sequence[subprocess.Popen[bytes]]) -> None:
    """Close the tasks' standard input when this process's own ends."""
    while os.read(0, 4096):
        pass
    for task in tasks:
        assert task.stdin is not None
        task.stdin.close()


def asked(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the resources that a step requests; the allocation must have as many."""
    options = argparse.ArgumentParser()
    for name in ("nodes", "ntasks", "ntasks-per-node", "cpus-per-task", "wait"):
        options.add_argument(f"--{name}", type=int)
    options.add_argument("--relative", type=int, default=0)
    for name in ("cpu-bind", "kill-on-bad-exit"):
        options.add_argument(f"--{name}")
    for name in ("overlap", "no-kill"):
        options.add_argument(f"--{name}", action="store_true")
    options.add_argument("command", nargs=argparse.REMAINDER)
    found = options.parse_args(arguments)
    assert found.relative + found.nodes <= int(os.environ["SLURM_JOB_NUM_NODES"])
    assert found.nodes == found.ntasks
    return found


def srun(arguments: Sequence[str]) -> int:
    """Run a step to its end; return the highest exit code of its tasks."""
    step = asked(arguments)
    ends_all = step.kill_on_bad_exit != "0"
    tasks = [start(number, step.nodes, step.command) for number in range(step.nodes)]

    def end(_number: int = 0, _frame: object = None) -> None:
        for task in tasks:
            if task.poll() is None:
                task.terminate()

    signal.signal(signal.SIGTERM, end)
    threading.Thread(target=hand_on, args=(tasks,), daemon=True).start()
    failed_at = None
    while any(task.poll() is None for task in tasks):
        if ends_all and failed_at is None and any(task.poll() for task in tasks):
            failed_at = time.monotonic()
            sys.stderr.write(f"srun: error: {socket.gethostname()}: task failed\n")
            sys.stderr.flush()
            end()
        if failed_at is not None and time.monotonic() - failed_at > KILL_S:
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        time.sleep(0.05)
    codes = [task.wait() for task in tasks]
    return max(code if code >= 0 else 128 - code for code in codes)


if __name__ == "__main__":
    sys.exit(srun(sys.argv[1:]))
