"""No process that lpfloop starts imports a module from the folder it is started in.

An unpacked data set with a json.py, or notes beside a secrets.py, are enough. The folder of these
tests holds a module named as each of the standard library and of what lpfloop imports; each says
that it was run, and raises.
"""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from preloaded import INTERPRETER
from trainings import plain_job
from typer.testing import CliRunner

from lpfloop.configs.engines import EngineConfig
from lpfloop.critics.math_answers import final_answer
from lpfloop.critics.math_pool import MathPool
from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.daemon.detach import start
from lpfloop.policies.engines.engine import Batch, Request, Sampling
from lpfloop.policies.trainers.trainer_process import launched
from lpfloop.policies.workers.open import open_engine
from lpfloop.policies.workers.own_check import require_importable
from lpfloop.stores.records import Message

PLANT = "open({place!r}, 'a').write(__name__ + '\\n')\nraise ImportError('planted')\n"
PACKAGES = ("configs", "critics", "loop", "policies", "stores", "benchmarks")


@pytest.fixture
def executed(tmp_path, monkeypatch):
    """Work in a folder full of plants; return the file in which they say that they were run."""
    folder, place = tmp_path / "data", tmp_path / "executed"
    folder.mkdir()
    names = {*sys.stdlib_module_names, *packages_distributions(), "lpfloop", "sitecustomize"}
    assert {"json", "html", "datasets", "numpy", "torch", "polars", "accelerate"} <= names
    for name in names:
        if name.isidentifier():
            (folder / f"{name}.py").write_text(PLANT.format(place=str(place)))
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "executable", INTERPRETER)
    place.touch()
    return place


def test_the_plants_work(executed):
    code = "import json, html, lpfloop"
    assert subprocess.run([sys.executable, "-c", code], check=False, stderr=-3).returncode
    assert executed.read_text()


def test_a_daemon_runs_nothing(executed):
    started = start(["resume", "nobody", "--lake", "lake"])
    assert "no run 'nobody'" in started.talk
    assert started.code == Exit.BAD_INPUT
    assert executed.read_text() == ""


def test_a_batch_file_of_slurm_runs_nothing(executed, tmp_path):
    told = CliRunner().invoke(app, ["launch", "slurm", "--print", "--run", "a", "--", "--help"])
    assert told.exit_code == Exit.DONE
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, body in (("srun", 'shift 4; exec "$@"'), ("squeue", "echo RUNNING")):
        (programs / name).write_text(f"#!/bin/sh\n{body}\n")
        (programs / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:/usr/bin:/bin", "SLURM_JOB_ID": "1"}
    done = subprocess.run(
        ["bash", "-c", told.stdout], env=environment, check=False, capture_output=True, text=True
    )
    assert "Usage" in done.stdout
    assert executed.read_text() == ""


@pytest.mark.model
@pytest.mark.parametrize("processes", [1, 2])
def test_a_trainer_its_launcher_and_its_children_run_nothing(executed, tmp_path, processes):
    job = replace(plain_job(tmp_path), processes=processes)
    job.output.mkdir()
    job.folder("job.json").write_text("{}")
    with launched(job, tmp_path / "train.log") as child:
        assert child.wait(timeout=300)
    log = (tmp_path / "train.log").read_text()
    assert "lpfloop.policies.train_worker" in log
    assert "planted" not in log
    assert executed.read_text() == ""


@pytest.mark.model
def test_a_worker_runs_nothing(executed, tmp_path, tiny_policy):
    sampling = Sampling(temperature=0, top_p=1, max_tokens=2)
    asked = Request(request_id="a", messages=(Message(role="user", content="2 + 3?"),), seed=1)
    config = EngineConfig(kind="transformers")
    engine = open_engine(str(tiny_policy), config, log=tmp_path / "worker.log")
    try:
        batch = Batch(key="a", requests=(asked,), sampling=sampling)
        assert len(list(engine.generate([batch]))) == 1
    finally:
        engine.close()
    assert executed.read_text() == ""


def test_the_math_pool_runs_nothing(executed):
    pytest.importorskip("math_verify")
    with MathPool(1, 30) as pool:
        half = final_answer("\\boxed{1/2}"), final_answer("\\boxed{0.5}")
        assert pool.compare([half]) == ["equal"]
    assert executed.read_text() == ""


def test_parts_of_ones_own_are_found_by_their_file(executed):
    Path("mine.py").write_text("def score(prompts, texts):\n    return [0.0 for _ in texts]\n")
    require_importable("./mine.py:score")
    assert executed.read_text() == ""


def commands(tree: ast.AST) -> Iterator[list[ast.expr]]:
    """Give the lists and tuples that begin with the interpreter."""
    for node in ast.walk(tree):
        elements = node.elts if isinstance(node, ast.List | ast.Tuple) else []
        if elements and ast.unparse(elements[0]) == "sys.executable":
            yield elements


def test_every_command_that_starts_the_interpreter_has_the_option(root):
    found = {
        f"{path.relative_to(root)}:{elements[0].lineno}": ast.unparse(elements[1])
        for package in PACKAGES
        for path in (root / package).rglob("*.py")
        for elements in commands(ast.parse(path.read_text()))
        if not ast.unparse(elements[1]).startswith("*")
    }
    assert len(found) >= 8
    # A script that is named by its path has its own folder ahead on the path, not the current one.
    safe = ("'-P'", "__file__")
    assert {place: said for place, said in found.items() if said not in safe} == {}
