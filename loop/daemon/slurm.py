"""Handing a run to Slurm: a batch file around `lpfloop run`, with checks before it is queued.

On several nodes `ray symmetric-run` starts Ray on each and the loop on the first. Slurm sends
SIGTERM to the shell two minutes before the time limit. The shell then stops the run, which commits
and exits as resumable, and requeues the job unless a user cancelled it.
"""

import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...configs.schema import ConfigError, RunConfig
from ...stores.address import bucket_of
from ...stores.journal_reader import JOURNAL
from ...stores.lake import run_folder
from ..recipes.roles import NeededRole, needed_roles
from ..run.models import CRITIC, is_endpoint

GRACE_S = 120
"""Seconds between SIGTERM and the end: the loop drains, commits and exits as resumable."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The resources of each node; None is the cluster's default. `time` is in Slurm's notation."""

    nodes: int = 1
    partition: str | None = None
    account: str | None = None
    gpus: int = 1
    cpus: int = 8
    mem: str = "64G"
    time: str = "24:00:00"


def batch_file(
    name: str,
    lake: Path,
    options: Sequence[str],
    allocation: Allocation,
    *,
    sampling: int,
    resumable: int,
) -> str:
    """Return an sbatch file that runs the loop until it is finished; its log is in the lake.

    `options` are options of `lpfloop run`. The nodes see the lake at the same place as this
    machine. Models are sampled in Ray on the last `sampling` nodes; 0: without Ray. `resumable` is
    the exit code of a loop that stopped cleanly before its end.

    Raises:
        ConfigError: if a value is not allowed in the file's header.
    """
    lake = lake.absolute()
    place = ("--lake", bucket_of(lake) or str(lake))

    def command(*words: str) -> str:
        return shlex.join([sys.executable, "-P", "-m", "lpfloop", *words])

    step = (CLUSTER if sampling else ALONE).format(
        nodes=allocation.nodes,
        training=allocation.nodes - sampling,
        cpus=allocation.cpus,
        gpus=allocation.gpus,
    )
    header = _header(name, str(lake), allocation, exclusive=sampling > 0)
    return TEMPLATE.format(
        header="\n".join(f"#SBATCH {line}" for line in header),
        path=shlex.quote(sysconfig.get_path("scripts")),
        journal=shlex.quote(str(run_folder(lake, name) / JOURNAL)),
        resume=command("resume", name, *place),
        start=command("run", "--run", name, *place, *options),
        step=step,
        stop=command("stop", name, *place),
        resumable=resumable,
    )


def _header(name: str, lake: str, allocation: Allocation, *, exclusive: bool) -> list[str]:
    """Return the options for sbatch.

    With more than one node the job survives the loss of one. `ray symmetric-run` refuses a node on
    which another Ray runs, and stops all Ray there, so its nodes are `exclusive`.
    """
    for option in ("partition", "account", "mem", "time"):
        value = getattr(allocation, option)
        if value is not None and not WORD.fullmatch(value):
            raise ConfigError(f"--{option} {value!r}: not a value that Slurm accepts")
    if '"' in lake or not lake.isprintable():
        raise ConfigError(f"--lake {lake!r}: not allowed in the header of a batch file")
    # sbatch reads this line, not the shell; `%` begins its patterns.
    log = f'"{lake}"'.replace("%", "%%")
    directives = {
        "gpus-per-node": allocation.gpus,
        "partition": allocation.partition,
        "account": allocation.account,
    }
    return [
        f"--job-name=lpfloop-{name}",
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
        *(["--exclusive"] if exclusive else []),
        *(f"--{option}={value}" for option, value in directives.items() if value),
    ]


def submit(text: str) -> str:
    """Hand a batch file to `sbatch`; return its output.

    Raises:
        ConfigError: if the program is not here, or refuses it.
    """
    program = shutil.which("sbatch")
    if program is None:
        raise ConfigError(
            "launch slurm: `sbatch` is not installed here; --print shows what to submit elsewhere"
        )
    done = subprocess.run([program], input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        message = " ".join((done.stderr or done.stdout).split()[-60:])
        raise ConfigError(f"launch slurm: `sbatch` refused it: {message}")
    return done.stdout


def sampling_nodes(config: RunConfig, nodes: int) -> int:
    """Return on how many of the nodes nothing is trained: models can be sampled there.

    Raises:
        ConfigError: if a training asks for more nodes or another way to start on them, or no model
            can run on the others.
    """
    sampling = nodes - config.training.nodes
    if sampling < 0:
        raise ConfigError(
            f"--nodes {nodes}: training.nodes={config.training.nodes}; ask for as many at least, "
            "or lower it"
        )
    if sampling and not _local_roles(config) and not _is_placed(config):
        idle = "1 node" if sampling == 1 else f"{sampling} nodes"
        raise ConfigError(
            f"--nodes {nodes}: every model of this run is at an endpoint, and {idle} would be "
            "idle; leave out --nodes"
        )
    return sampling


def placed_in_ray(config: RunConfig) -> list[str]:
    """Return the options that put policy and critic in a Ray cluster, unless a place is set."""
    roles = [] if _is_placed(config) else _local_roles(config)
    return [f"--set={role.name}.engine.place=ray" for role in roles]


def _local_roles(config: RunConfig) -> list[NeededRole]:
    """Return policy and critic, if the run asks them and they are models here."""
    return [
        role
        for role in needed_roles(config)
        if role.name in ("policy", CRITIC)
        and role.engine is not None
        and role.engine.kind not in ("openai", "scripted")
        and not is_endpoint(role.model)
    ]


def _is_placed(config: RunConfig) -> bool:
    """Whether the configuration places a model elsewhere."""
    engines = [role.engine for role in needed_roles(config) if role.engine is not None]
    return any(part.place != "local" for part in (config.reward, *engines))
