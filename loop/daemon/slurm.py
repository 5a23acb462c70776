"""The batch file for Slurm: one template around `lpfloop run`.

On several nodes `ray symmetric-run` starts Ray on each and the loop on the first. Slurm sends
SIGTERM to the shell two minutes before the time limit. The shell then stops the run, which commits
and exits as resumable, and requeues the job unless a user cancelled it.
"""

import re
import shlex
import sys
import sysconfig

from ...configs.schema import ConfigError
from .launching import GRACE_S, Allocation, LaunchedRun

WORD = re.compile(r"[A-Za-z0-9_.,:+-]{1,64}")
"""A text that sbatch reads as one word."""

TEMPLATE = """\
#!/bin/bash
{header}

export PATH={path}:"$PATH"
if [ -e {journal} ]; then
    loop=({resume})
else
    loop=({start})
fi
{step} &
step=$!

told=
stop() {{
    trap "" TERM
    told=1
    {stop} || kill -TERM "$step"
}}
trap stop TERM
wait "$step"
code=$?
if [ -n "$told" ] && [ "$code" -gt 128 ]; then
    wait "$step"
    code=$?
fi

# {resumable}: the run was stopped and can go on.
state=$(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%T)
if [ "$code" -eq {resumable} ] && [ "$state" = RUNNING ]; then
    exec scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
"""

ALONE = """\
srun --nodes=1 --ntasks=1 --relative=0 --cpus-per-task={cpus} "${{loop[@]}}"\
"""
"""The step of a loop without a Ray cluster."""

CLUSTER = """\
export RAY_USAGE_STATS_ENABLED=0 RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=600
# Seconds until the other nodes notice that the loop has ended; the job waits for them.
export RAY_gcs_rpc_server_reconnect_timeout_s=20
unset RAY_ADDRESS
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
port=$((20000 + SLURM_JOB_ID % 10000))
# Ray gets no GPU of the first {training} of the nodes: trainings run there.
srun --nodes={nodes} --ntasks={nodes} --cpus-per-task={cpus} --kill-on-bad-exit=0 --no-kill \\
    bash -c 'ray symmetric-run --address "$0" --min-nodes {nodes} --num-cpus {cpus} \
--num-gpus $((SLURM_NODEID < {training} ? 0 : {gpus})) -- "$@"' "$head:$port" "${{loop[@]}}"\
"""
"""The step of a loop whose models are sampled in a Ray cluster of all nodes."""


def batch_file(run: LaunchedRun, allocation: Allocation, *, sampling: int, resumable: int) -> str:
    """Return an sbatch file that runs the loop until it is finished; its log is in the lake.

    Models are sampled in Ray on the last `sampling` nodes; 0: without Ray. `resumable` is the exit
    code of a loop that stopped cleanly before its end.

    Raises:
        ConfigError: if a value is not allowed in the file's header.
    """
    program = (sys.executable, "-P", "-m", "lpfloop")
    step = (CLUSTER if sampling else ALONE).format(
        nodes=allocation.nodes,
        training=allocation.nodes - sampling,
        cpus=allocation.cpus,
        gpus=allocation.gpus,
    )
    return TEMPLATE.format(
        header="\n".join(f"#SBATCH {line}" for line in _header(run, allocation, sampling)),
        path=shlex.quote(sysconfig.get_path("scripts")),
        journal=shlex.quote(str(run.journal)),
        resume=run.go_on(program, "resume"),
        start=run.start(program),
        step=step,
        stop=run.go_on(program, "stop"),
        resumable=resumable,
    )


def _header(run: LaunchedRun, allocation: Allocation, sampling: int) -> list[str]:
    """Return the options for sbatch.

    With more than one node the job survives the loss of one. `ray symmetric-run` refuses a node on
    which another Ray runs, and stops all Ray there, so its nodes are exclusive.
    """
    for option in ("partition", "account", "mem", "time"):
        value = getattr(allocation, option)
        if value is not None and not WORD.fullmatch(value):
            raise ConfigError(f"--{option} {value!r}: not a value that a scheduler accepts")
    folder = str(run.lake.absolute())
    if '"' in folder or not folder.isprintable():
        raise ConfigError(f"--lake {folder!r}: not allowed in the header of a batch file")
    # sbatch reads this line, not the shell; `%` begins its patterns.
    log = f'"{folder}"'.replace("%", "%%")
    return [
        f"--job-name=lpfloop-{run.name}",
        f"--output={log}/slurm-%j.log",
        "--open-mode=append",
        f"--nodes={allocation.nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={allocation.cpus}",
        f"--mem={allocation.mem}",
        f"--time={allocation.time}",
        f"--signal=B:TERM@{GRACE_S}",
        "--requeue",
        *(["--no-kill"] if allocation.nodes > 1 else []),
        *(["--exclusive"] if sampling else []),
        *([f"--gpus-per-node={allocation.gpus}"] if allocation.gpus else []),
        *([f"--partition={allocation.partition}"] if allocation.partition else []),
        *([f"--account={allocation.account}"] if allocation.account else []),
    ]
