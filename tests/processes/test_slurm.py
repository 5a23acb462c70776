"""The batch file for Slurm, run by the shell with small programs in place of Slurm and Ray."""

import os
import shlex
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from processes import wait_until
from ray.scripts.symmetric_run import curate_and_validate_ray_start_args, symmetric_run
from typer.testing import CliRunner

from lpfloop.loop.cli.app import Exit, app

PROGRAMS = {
    "srun": 'printf "%s\\n" "$@" > "$TOLD/srun"; exit "$CODE"',
    "squeue": 'echo "$STATE"',
    "scontrol": 'printf "%s\\n" "$@" > "$TOLD/scontrol"',
}
NASTY = "a b'c\"d$HOME;`id`\\%j"


def program() -> list[str]:
    """Return the command that the batch file starts, with the tests' interpreter."""
    return [sys.executable, "-P", "-m", "lpfloop"]


def launch(*arguments: object) -> str:
    told = CliRunner().invoke(app, ["launch", "slurm", "--print", *map(str, arguments)])
    assert told.exit_code == 0, told.stderr
    return told.stdout


def shell(
    tmp_path: Path, text: str, *, code: int = 0, state: str = "RUNNING", **programs: str
) -> subprocess.Popen[bytes]:
    """Start a batch file with these programs on the path."""
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    for name, body in {**PROGRAMS, **programs}.items():
        (folder / name).write_text(f"#!/bin/bash\n{body}\n")
        (folder / name).chmod(0o755)
    environment = {
        "PATH": f"{folder}:/usr/bin:/bin",
        "TOLD": str(tmp_path),
        "CODE": str(int(code)),
        "STATE": state,
        "SLURM_JOB_ID": "17",
        "SLURM_JOB_NODELIST": "n[1-4]",
    }
    text = text.replace(f"PATH={sysconfig.get_path('scripts')}:", f"PATH={folder}:")
    return subprocess.Popen(["bash", "-c", text], env=environment)


def asked(tmp_path: Path, program: str) -> list[str]:
    return (tmp_path / program).read_text().splitlines()


def test_started_or_continued(tmp_path: Path) -> None:
    text = launch("--run", "a", "--lake", tmp_path / "lake", "--", "--set", f"prompts.task={NASTY}")
    step = ["--nodes=1", "--ntasks=1", "--relative=0", "--cpus-per-task=8", *program()]
    where = ["--lake", str(tmp_path / "lake")]
    assert shell(tmp_path, text).wait() == 0
    assert not (tmp_path / "scontrol").exists()
    started = [*step, "run", "--run", "a", *where, "--set", f"prompts.task={NASTY}"]
    assert asked(tmp_path, "srun") == started
    run = tmp_path / "lake" / "runs" / "a"
    run.mkdir(parents=True)
    (run / "journal.sqlite").touch()
    assert shell(tmp_path, text).wait() == 0
    assert asked(tmp_path, "srun") == [*step, "resume", "a", *where]


@pytest.mark.parametrize(
    ("code", "state", "again"),
    [
        (Exit.FAULT, "RUNNING", False),
        (Exit.STOPPED, "RUNNING", True),
        (Exit.STOPPED, "CANCELLED", False),
    ],
)
def test_only_a_stopped_run_comes_back(tmp_path: Path, code: Exit, state: str, again: bool) -> None:
    text = launch("--run", "a", "--lake", tmp_path)
    ended = shell(tmp_path, text, code=code, state=state).wait()
    assert ended == (0 if again else code)
    assert not again or asked(tmp_path, "scontrol") == ["requeue", "17"]
    assert again or not (tmp_path / "scontrol").exists()


def test_time_limit_stops_the_run(tmp_path: Path) -> None:
    text = launch("--run", "a", "--lake", tmp_path).replace(shlex.join(program()), "lpfloop")
    stopped = tmp_path / "stopped"
    job = shell(
        tmp_path,
        text,
        srun=f'touch "$TOLD/srun"; while [ ! -e {stopped} ]; do sleep 0.05; done; exit 3',
        lpfloop=f'printf "%s\\n" "$@" > "$TOLD/lpfloop"; touch {stopped}',
    )
    wait_until((tmp_path / "srun").exists)
    os.kill(job.pid, signal.SIGTERM)
    assert job.wait() == 0
    assert asked(tmp_path, "lpfloop") == ["stop", "a", "--lake", str(tmp_path)]
    assert asked(tmp_path, "scontrol") == ["requeue", "17"]


EACH_NODE = """
while [[ $1 == --* ]]; do shift; done
for node in 0 1 2 3; do SLURM_NODEID=$node "$@"; done
"""


def test_several_nodes_are_a_ray_cluster(tmp_path: Path) -> None:
    words = ("--run", "a", "--lake", tmp_path / "lake", "--nodes", 4, "--gpus", 8, "--cpus", 64)
    text = launch(*words, "--", "--set", f"prompts.task={NASTY}")
    job = shell(
        tmp_path,
        text,
        srun=EACH_NODE,
        scontrol='[ "$*" = "show hostnames n[1-4]" ] && printf "%s\\n" n1 n2 n3 n4',
        ray='printf "%s\\n" "$@" > "$TOLD/ray-$SLURM_NODEID"',
    )
    assert job.wait() == 0
    for node in range(4):
        command, *rest = asked(tmp_path, f"ray-{node}")
        place = rest.index("--")
        parsed = symmetric_run.make_context("ray", rest[:place], resilient_parsing=True).params
        assert command == "symmetric-run"
        assert (parsed["address"], parsed["min_nodes"]) == ("n1:20017", 4)
        gpus = "0" if node == 0 else "8"
        resources = ["--num-cpus", "64", "--num-gpus", gpus]
        assert curate_and_validate_ray_start_args(rest[:place]) == resources
        assert rest[place + 1 :] == [
            *(*program(), "run", "--run", "a", "--lake", str(tmp_path / "lake")),
            *("--set", f"prompts.task={NASTY}"),
            *("--set=policy.engine.place=ray", "--set=critic.engine.place=ray"),
        ]


BAD = {
    "run": ["slurm", "--print", "--run", "a/b"],
    "time": ["slurm", "--print", "--run", "a", "--time", "1:00\n#SBATCH --wrap=x"],
    "lake": ["slurm", "--print", "--run", "a", "--lake", 'x"y'],
}


@pytest.mark.parametrize("name", BAD)
def test_refusals(name: str) -> None:
    told = CliRunner().invoke(app, ["launch", *BAD[name]])
    assert told.exit_code == Exit.BAD_INPUT
    assert told.stdout == ""
