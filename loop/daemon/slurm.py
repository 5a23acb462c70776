"""A batch file for Slurm: it runs the loop, stops it in time, and resubmits itself.

Slurm sends SIGTERM to the file's shell two minutes before the job's time is over; that hands it on
to the loop, which drains, commits and exits as resumable, and the file requeues the job. A job that
a user cancelled is not requeued. Of several nodes the first has the loop, and the last ones have a
worker each, which ends with the loop.
"""

import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...configs.schema import ConfigError
from .launching import GRACE_S, Allocation, LaunchedRun, require_words


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """How workers join the run: on how many nodes they are, at which port, by which token."""

    workers: int
    port: int
    token: Path


def batch_file(
    run: LaunchedRun,
    folder: Path,
    allocation: Allocation,
    joining: Joining | None = None,
    *,
    resumable: int,
) -> str:
    """Return an sbatch file that runs the loop until it is finished; its log goes to `folder`.

    `resumable` is the exit code of a loop that stopped cleanly before its end.

    Raises:
        ConfigError: if a value is not allowed in the file's header.
    """
    folder = folder.absolute()
    require_words(allocation)
    if '"' in str(folder) or not str(folder).isprintable():
        raise ConfigError(f"--lake {str(folder)!r}: not allowed in the header of a batch file")
    workers = () if joining is None else _workers(allocation, joining)
    return "\n".join(
        [
            "#!/bin/bash",
            *(f"#SBATCH {line}" for line in _header(run, folder, allocation)),
            "",
            *(() if joining is None else _token(joining.token)),
            *_loop(run, allocation),
            *workers,
            *_end(resumable, ends=() if joining is None else ("workers",)),
        ]
    )


def token_file(folder: Path, run: str) -> Path:
    """Return the file by which the head of a run and its workers know each other."""
    return folder.absolute() / f"{run}.join.token"


def _program() -> list[str]:
    return [sys.executable, "-P", "-m", "lpfloop"]


def _header(run: LaunchedRun, folder: Path, allocation: Allocation) -> Iterator[str]:
    yield f"--job-name=lpfloop-{run.name}"
    yield f"--output={_in_header(folder)}/slurm-%j.log"
    yield "--open-mode=append"
    yield f"--nodes={allocation.nodes}"
    yield "--ntasks-per-node=1"
    yield f"--cpus-per-task={allocation.cpus}"
    yield f"--mem={allocation.mem}"
    yield f"--time={allocation.time}"
    yield f"--signal=B:TERM@{GRACE_S}"
    yield "--requeue"
    if allocation.nodes > 1:
        # A node that is lost costs what its worker had in hand, not the job.
        yield "--no-kill"
    if allocation.gpus:
        yield f"--gpus-per-node={allocation.gpus}"
    if allocation.partition:
        yield f"--partition={allocation.partition}"
    if allocation.account:
        yield f"--account={allocation.account}"


def _token(path: Path) -> Iterator[str]:
    yield "# Workers and loop know each other by this."
    yield f"token={shlex.quote(str(path))}"
    yield 'if [ ! -s "$token" ]; then'
    yield """    (umask 077 && od -An -N32 -tx1 /dev/urandom | tr -d ' \\n' > "$token")"""
    yield "fi"
    yield ""


def _loop(run: LaunchedRun, allocation: Allocation) -> Iterator[str]:
    """Start the loop on the first node: a new run, or one that is there."""
    yield f"if [ -e {shlex.quote(str(run.journal))} ]; then"
    yield f"    loop=({shlex.join(run.resumption(_program()))})"
    yield "else"
    yield f"    loop=({shlex.join(run.start(_program()))})"
    yield "fi"
    yield f'{_step(1, 0, allocation)} "${{loop[@]}}" &'
    yield "loop_step=$!"
    yield ""


def _workers(allocation: Allocation, joining: Joining) -> Iterator[str]:
    """Start a worker on each of the last nodes; one that is lost does not end the others."""
    step = _step(joining.workers, allocation.nodes - joining.workers, allocation)
    worker = shlex.join([*_program(), "worker"])
    yield f"{step} --wait=0 --kill-on-bad-exit=0 --no-kill \\"
    yield f'    {worker} --join "$(hostname):{joining.port}" --token-file "$token" &'
    yield "workers=$!"
    yield ""


def _step(nodes: int, first: int, allocation: Allocation) -> str:
    # A step takes one core unless it says so itself.
    cpus = f"--cpus-per-task={allocation.cpus}"
    return f"srun --nodes={nodes} --ntasks={nodes} --relative={first} {cpus}"


def _end(resumable: int, *, ends: Sequence[str]) -> Iterator[str]:
    """Wait for the loop, then end the steps in `ends`; what comes of the loop decides.

    The signal, which ends the first `wait`, is handed on to the loop once.
    """
    yield "told="
    yield """trap 'trap "" TERM; told=1; kill -TERM "$loop_step"' TERM"""
    yield 'wait "$loop_step"'
    yield "code=$?"
    yield 'if [ -n "$told" ] && [ "$code" -gt 128 ]; then'
    yield '    wait "$loop_step"'
    yield "    code=$?"
    yield "fi"
    for step in ends:
        yield f'kill -TERM "${step}"'
    yield ""
    yield f"# {resumable}: stopped cleanly, and not at its end. A cancelled job runs no more."
    yield 'state=$(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%T)'
    yield f'if [ "$code" -eq {resumable} ] && [ "$state" = RUNNING ]; then'
    yield '    exec scontrol requeue "$SLURM_JOB_ID"'
    yield "fi"
    yield 'exit "$code"'
    yield ""


def _in_header(path: Path) -> str:
    """Quote a path for a line that sbatch reads, not the shell; `%` begins patterns of sbatch."""
    return f'"{path}"'.replace("%", "%%")
