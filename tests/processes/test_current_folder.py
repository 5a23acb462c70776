"""No process of lpfloop imports a module from the folder it is started in.

A user's folder may contain an unpacked data set with a json.py, or notes with a secrets.py. The
folder of these tests contains a module for each name of the standard library and of lpfloop's
imports; each such module records its import, and raises.
"""

import ast
import sys
from contextlib import closing
from dataclasses import replace
from importlib.metadata import packages_distributions

import pytest
from preloaded import INTERPRETER
from trainings import plain_job

from lpfloop.configs.engines import EngineConfig
from lpfloop.loop.cli.app import Exit
from lpfloop.loop.daemon.child_run import start
from lpfloop.policies.engines.engine import Batch, Request, Sampling
from lpfloop.policies.trainers.launch import environment
from lpfloop.policies.trainers.process import WarmTrainer, Watch, start_child
from lpfloop.policies.workers.engine_factory import open_engine
from lpfloop.stores.records import Message

PLANT = "open({place!r}, 'a').write(__name__ + '\\n')\nraise ImportError('planted')\n"
PACKAGES = ("configs", "critics", "loop", "policies", "stores", "benchmarks")


@pytest.fixture
def executed(tmp_path, monkeypatch):
    """Work in a folder of planted modules; return the file in which they record their imports."""
    folder, place = tmp_path / "data", tmp_path / "executed"
    folder.mkdir()
    names = {*sys.stdlib_module_names, *packages_distributions(), "lpfloop", "sitecustomize"}
    for name in names:
        if name.isidentifier():
            (folder / f"{name}.py").write_text(PLANT.format(place=str(place)))
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "executable", INTERPRETER)
    place.touch()
    return place


def test_daemon_runs_nothing(executed):
    started = start(["resume", "nobody", "--lake", "lake"])
    assert "nobody" in started.talk
    assert started.code == Exit.BAD_INPUT
    assert executed.read_text() == ""


@pytest.mark.model
def test_worker_runs_nothing(executed, tmp_path, tiny_policy):
    sampling = Sampling(temperature=0, top_p=1, max_tokens=2)
    asked = Request(request_id="a", messages=(Message(role="user", content="2 + 3?"),), seed=1)
    config = EngineConfig(kind="transformers")
    with closing(open_engine(str(tiny_policy), config, log=tmp_path / "worker.log")) as engine:
        batch = Batch(key="a", requests=(asked,), sampling=sampling)
        assert len(list(engine.generate([batch]))) == 1
    assert executed.read_text() == ""


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cold", "warm", "two processes"])
def test_trainer_runs_nothing(executed, tmp_path, kind):
    """The trainer, also one waiting for its job, and the launcher of two; they refuse the job."""
    job = replace(plain_job(tmp_path), processes=2 if kind == "two processes" else 1)
    job.output.mkdir()
    job.folder("job.json").write_text("{}")
    log = tmp_path / "train.log"
    with closing(WarmTrainer()) as warm:
        if kind == "warm":
            warm.start(environment(job), log)
        watch = Watch(
            log=log,
            hang_timeout_s=300,
            checkpoint_s=300,
            is_to_end=bool,
            warm=warm if warm.pid else None,
        )
        with start_child(job, watch) as child:
            assert child.wait(timeout=300)
    assert "in read_job" in log.read_text()
    assert "planted" not in log.read_text()
    assert executed.read_text() == ""


def commands(tree):
    """Give the lists and tuples that begin with the interpreter."""
    for node in ast.walk(tree):
        elements = node.elts if isinstance(node, ast.List | ast.Tuple) else []
        if elements and ast.unparse(elements[0]) == "sys.executable":
            yield elements


def test_commands_have_the_option(root):
    found = {
        f"{path.relative_to(root)}:{elements[0].lineno}": ast.unparse(elements[1])
        for package in PACKAGES
        for path in (root / package).rglob("*.py")
        for elements in commands(ast.parse(path.read_text()))
        if not ast.unparse(elements[1]).startswith("*")
    }
    assert len(found) >= 8
    # A script that is called by its path has its folder first on sys.path, not the current one.
    safe = ("'-P'", "__file__", "str(CHECKS_FILE)", "str(TRAINING_FILE)")
    assert {place: said for place, said in found.items() if said not in safe} == {}
