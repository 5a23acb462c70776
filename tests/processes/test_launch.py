"""`lpfloop launch`: its file for Slurm; the example of a job on Kubernetes."""

import shlex
from pathlib import Path

import yaml
from typer.main import get_command
from typer.testing import CliRunner

from lpfloop.configs.load import load_config
from lpfloop.loop.cli.app import Exit, app
from lpfloop.stores.address import STATE


def launched(*words: object) -> str:
    told = CliRunner().invoke(app, ["launch", *map(str, words)])
    assert told.exit_code == Exit.DONE, told.stderr
    return told.stdout


def refused(*words: object) -> str:
    told = CliRunner().invoke(app, ["launch", *map(str, words)])
    assert told.exit_code == Exit.BAD_INPUT
    assert told.stdout == ""
    return told.stderr


SEVERAL = ("slurm", "--print", "--run", "a", "--nodes", "3")
BUCKET = ("--lake", "s3://bucket/lake")
REFUSED = (
    (("slurm", "--run", "a", "--nodes", "0"), "--nodes"),
    ((*SEVERAL, "--", "--policy", "http://h/v1", "--critic", "http://h/v1"), "2 nodes"),
    ((*SEVERAL, "--", "--set", "trai=3"), "'trai'"),
    (("ray", "--print", "--run", "a"), "the scheduler is slurm"),
)


def test_refused_launches(subtests) -> None:
    for words, said in REFUSED:
        with subtests.test(words=words):
            assert said in " ".join(refused(*words).split())


def test_schedulers_program_gets_the_text(tmp_path, environ) -> None:
    environ.update({STATE: str(tmp_path), "PATH": str(tmp_path)})
    scheduler, program = "slurm", "sbatch"
    words = ("--run", "a", *BUCKET)
    assert program in refused(scheduler, *words)
    printed = launched(scheduler, "--print", *words)
    (tmp_path / program).write_text(f'#!/bin/sh\n/bin/cat > "{tmp_path}/got"\necho "job 17"\n')
    (tmp_path / program).chmod(0o755)
    assert launched(scheduler, *words) == "job 17\n"
    assert (tmp_path / "got").read_text() == printed
    (tmp_path / program).write_text("#!/bin/sh\necho 'no such partition' >&2\nexit 1\n")
    assert "no such partition" in refused(scheduler, *words)


def test_rayjob_example(root: Path) -> None:
    found = yaml.safe_load((root / "examples" / "rayjob.yaml").read_text())
    assert (found["apiVersion"], found["kind"]) == ("ray.io/v1", "RayJob")
    program, *words = shlex.split(found["spec"]["entrypoint"])
    assert program == "lpfloop"
    name, command, rest = get_command(app).resolve_command(None, words)
    assert name == "run"
    given = command.make_context("run", rest).params
    places = load_config("tiny", None, given["settings"], {})
    assert places.policy.engine.place == places.critic.engine.place == "ray"
    cluster = found["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        mounts = group["template"]["spec"]["containers"][0]["volumeMounts"]
        assert "/lake" in [mount["mountPath"] for mount in mounts]
