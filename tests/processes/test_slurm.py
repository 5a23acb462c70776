"""The batch file for Slurm, run by the shell with a scheduler of three little programs."""

import subprocess
import sys

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
    done = subprocess.run(["bash", "-c", text], env=environment, check=False)
    asked = (tmp_path / "srun").read_text().splitlines()
    requeued = tmp_path / "scontrol"
    return done.returncode, asked, requeued.read_text().split() if requeued.exists() else None


def test_started_or_continued(tmp_path):
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


def test_only_a_stopped_run_comes_back(tmp_path_factory, subtests):
    for code, state, again in [
        (Exit.FAULT, "RUNNING", False),
        (Exit.STOPPED, "RUNNING", True),
        (Exit.STOPPED, "CANCELLED", False),
    ]:
        with subtests.test(case=state):
            tmp_path = tmp_path_factory.mktemp("case")
            text = launch("--run", "a", "--lake", tmp_path)
            ended, _, requeued = batch(tmp_path, text, code=code, state=state)
            assert requeued == (["requeue", "17"] if again else None)
            assert ended == (0 if again else code)


BAD = {
    "run": ["slurm", "--print", "--run", "a/b"],
    "time": ["slurm", "--print", "--run", "a", "--time", "1:00\n#SBATCH --wrap=x"],
    "lake": ["slurm", "--print", "--run", "a", "--lake", 'x"y'],
}


def test_refusals(subtests):
    for name, words in BAD.items():
        with subtests.test(case=name):
            told = CliRunner().invoke(app, ["launch", *words])
            assert told.exit_code == Exit.BAD_INPUT
            assert told.stdout == ""
