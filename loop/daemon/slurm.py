"""A batch file for Slurm: it runs the loop, stops it in time, and resubmits itself.

Slurm sends SIGTERM to the job's step two minutes before its time is over; the loop drains, commits
and exits as resumable, and the file requeues the job. A job that a user cancelled
is not requeued.
"""

import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...configs.schema import ConfigError
from ...stores.journal_reader import JOURNAL
from ...stores.lake import run_folder

GRACE_S = 120
WORD = re.compile(r"[A-Za-z0-9_.,:+-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """What to ask Slurm for; None is the cluster's default. `time` is in Slurm's notation."""

    partition: str | None = None
    account: str | None = None
    gpus: int = 1
    cpus: int = 8
    mem: str = "64G"
    time: str = "24:00:00"


def batch_file(
    name: str, lake: Path, options: Sequence[str], allocation: Allocation, *, resumable: int
) -> str:
    """Return an sbatch file that runs `lpfloop run OPTIONS` as run `name` until it is finished.

    `resumable` is the exit code of a loop that stopped cleanly before its end.

    Raises:
        ConfigError: if a value is not allowed in the file's header.
        RunNameError: if the name of the run is not allowed.
    """
    lake = lake.absolute()
    folder = run_folder(lake, name)
    _check(lake, allocation)
    where = ["--lake", str(lake)]
    program = [sys.executable, "-P", "-m", "lpfloop"]
    run = [*program, "run", "--run", name, *where, *options]
    resume = [*program, "resume", name, *where]
    journal = folder / JOURNAL
    header = [
        f"--job-name=lpfloop-{name}",
        f"--output={_in_header(lake)}/slurm-%j.log",
        "--open-mode=append",
        "--nodes=1",
        "--ntasks=1",
        f"--cpus-per-task={allocation.cpus}",
        f"--mem={allocation.mem}",
        f"--time={allocation.time}",
        f"--signal=TERM@{GRACE_S}",
        "--requeue",
    ]
    header += [f"--gpus-per-node={allocation.gpus}"] if allocation.gpus else []
    header += [f"--partition={allocation.partition}"] if allocation.partition else []
    header += [f"--account={allocation.account}"] if allocation.account else []
    return "\n".join(
        [
            "#!/bin/bash",
            *(f"#SBATCH {line}" for line in header),
            "",
            "# The signal goes to the step that srun starts, which is the loop itself.",
            f"if [ -e {shlex.quote(str(journal))} ]; then",
            f"    srun --ntasks=1 {shlex.join(resume)}",
            "else",
            f"    srun --ntasks=1 {shlex.join(run)}",
            "fi",
            "code=$?",
            "",
            f"# {resumable}: stopped cleanly, and not at its end. A cancelled job runs no more.",
            'state=$(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%T)',
            f'if [ "$code" -eq {resumable} ] && [ "$state" = RUNNING ]; then',
            '    exec scontrol requeue "$SLURM_JOB_ID"',
            "fi",
            'exit "$code"',
            "",
        ]
    )


def _check(lake: Path, allocation: Allocation) -> None:
    for option in ("partition", "account", "mem", "time"):
        value = getattr(allocation, option)
        if value is not None and not WORD.fullmatch(value):
            raise ConfigError(f"--{option} {value!r}: not a value that Slurm accepts")
    if '"' in str(lake) or not str(lake).isprintable():
        raise ConfigError(f"--lake {str(lake)!r}: not allowed in the header of a batch file")


def _in_header(path: Path) -> str:
    """Quote a path for a line that sbatch reads, not the shell; `%` begins patterns of sbatch."""
    return f'"{path}"'.replace("%", "%%")
