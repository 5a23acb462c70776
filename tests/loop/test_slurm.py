"""The batch file for Slurm, run by the shell with a scheduler of three little programs."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from lpfloop.loop.cli.app import Exit, app

SCHEDULER = {
    "srun": 'printf "%s\\n" "$@" > "$TOLD/srun"; exit "$CODE"',
    "squeue": 'echo "$STATE"',
    "scontrol": 'printf "%s\\n" "$@" > "$TOLD/scontrol"',
}
NASTY = "a b'c\"d$HOME;`id`\\%j"


def launch(*arguments):
    told = CliRunner().invoke(app, ["launch", "slurm", "--print", *map(str, arguments)])
    assert told.exit_code == 0, told.stderr
    return told.stdout


def batch(tmp_path, text, *, code=0, state="RUNNING"):
    """Run a batch file; return its exit code, srun's arguments, and whether it was put back."""
    programs = tmp_path / "bin"
    programs.mkdir(exist_ok=True)
    for name, body in SCHEDULER.items():
        (programs / name).write_text(f"#!/bin/sh\n{body}\n")
        (programs / name).chmod(0o755)
    environment = {
        "PATH": f"{programs}:/usr/bin:/bin",
        "TOLD": str(tmp_path),
        "CODE": str(int(code)),
        "STATE": state,
        "SLURM_JOB_ID": "17",
    }
    done = subprocess.run(["bash", "-c", text], env=environment, check=False, timeout=300)
    asked = (tmp_path / "srun").read_text().splitlines()
    requeued = tmp_path / "scontrol"
    return done.returncode, asked, requeued.read_text().split() if requeued.exists() else None


def test_the_header_asks_for_time_to_stop_and_for_another_turn(tmp_path):
    options = ["--partition", "gpu", "--gpus", "4", "--time", "2-00:00:00", "--mem", "128G"]
    lines = launch("--run", "a", "--lake", tmp_path, *options).splitlines()
    assert lines[0] == "#!/bin/bash"
    header = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH ")]
    assert {
        "--nodes=1",
        "--signal=B:TERM@120",
        "--requeue",
        "--partition=gpu",
        "--gpus-per-node=4",
        "--time=2-00:00:00",
        "--mem=128G",
        "--cpus-per-task=8",
        "--open-mode=append",
        "--job-name=lpfloop-a",
    } <= set(header)
    assert lines[1 : len(header) + 1] == [f"#SBATCH {line}" for line in header]


def test_a_new_run_is_started_and_one_that_is_there_is_continued(tmp_path):
    text = launch("--run", "a", "--lake", tmp_path / "lake", "--", "--set", f"prompts.task={NASTY}")
    step = ["--nodes=1", "--ntasks=1", "--relative=0", "--cpus-per-task=8"]
    program = [*step, sys.executable, "-P", "-m", "lpfloop"]
    where = ["--lake", str(tmp_path / "lake")]
    code, asked, requeued = batch(tmp_path, text)
    assert (code, requeued) == (0, None)
    assert asked == [*program, "run", "--run", "a", *where, "--set", f"prompts.task={NASTY}"]
    run = tmp_path / "lake" / "runs" / "a"
    run.mkdir(parents=True)
    (run / "journal.sqlite").touch()
    assert batch(tmp_path, text)[1] == [*program, "resume", "a", *where]


@pytest.mark.parametrize(
    ("code", "state", "again"),
    [
        (Exit.DONE, "RUNNING", False),
        (Exit.FAULT, "RUNNING", False),
        (Exit.NOTHING_TO_TRAIN_ON, "RUNNING", False),
        (Exit.STOPPED, "RUNNING", True),
        (Exit.STOPPED, "CANCELLED", False),
        (Exit.STOPPED, "COMPLETING", False),
    ],
)
def test_only_a_run_that_was_stopped_by_its_time_comes_back(tmp_path, code, state, again):
    text = launch("--run", "a", "--lake", tmp_path)
    ended, _, requeued = batch(tmp_path, text, code=code, state=state)
    assert requeued == (["requeue", "17"] if again else None)
    assert ended == (0 if again else code)


BAD = {
    "run": ["--run", "a/b"],
    "time": ["--run", "a", "--time", "1:00\n#SBATCH --wrap=x"],
    "partition": ["--run", "a", "--partition", "x y"],
    "lake": ["--run", "a", "--lake", 'x"y'],
}


@pytest.mark.parametrize("name", BAD)
def test_what_would_break_the_header_is_refused(name):
    told = CliRunner().invoke(app, ["launch", "slurm", "--print", *BAD[name]])
    assert told.exit_code == Exit.BAD_INPUT
    assert told.stderr.startswith("error: ")
    assert told.stdout == ""


def test_another_scheduler_is_not_known():
    told = CliRunner().invoke(app, ["launch", "pbs", "--print", "--run", "a"])
    assert told.exit_code == Exit.BAD_INPUT
    assert "slurm" in told.stderr
