"""`lpfloop.run` and `lpfloop.resume`: a Python program runs the loop."""

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
from processes import EVALUATED, FREE, GATED, SUPPORT, Operated, wait_until
from pydantic import SecretStr

import lpfloop
from lpfloop.configs.load import load_config
from lpfloop.errors import ConfigError, NothingToTrainOn
from lpfloop.loop.daemon import child_run, control
from lpfloop.loop.daemon.child_run import as_order, job_of
from lpfloop.loop.daemon.control import Command, ask
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.lake.query.runs import NoSuchRunError

SCRIPTED = {
    "extends": "tiny",
    "policy": {"engine": {"kind": "scripted", "script": "scripts:wordy_policy"}},
    "critic": {"engine": {"kind": "scripted", "script": "scripts:critic"}},
    "reward": {"model": "none"},
    "assessment": {"kl": False},
    "prompts": {"per_iteration": 6, "max_test": 2, "max_dev": 2, "chunk": 3},
}


PATH = os.pathsep.join(filter(None, [str(SUPPORT), os.environ.get("PYTHONPATH")]))


@pytest.fixture(autouse=True)
def place(tmp_path, environ, monkeypatch):
    environ["PYTHONPATH"] = PATH
    environ["LPFLOOP_LAKE"] = str(tmp_path / "lake")
    popen = partial(subprocess.Popen, env=environ)
    monkeypatch.setattr(
        child_run, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": popen})
    )


def test_run_from_a_thread(capfd):
    made = []

    def work():
        made.append(lpfloop.run(SCRIPTED, iterations=0, name="mine", display="plain"))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join()
    with made[0] as run:
        assert run.summary().document["state"] == "done: 0 iterations"
        assert run.config["prompts"]["chunk"] == 3
    assert "evaluate " in capfd.readouterr().err
    with pytest.raises(ConfigError, match="another configuration"):
        lpfloop.run(SCRIPTED, iterations=0, name="mine", seed=7, display="none")


def test_end_is_an_exception(capfd):
    with pytest.raises(NothingToTrainOn, match=r"fewer than training\.min_pairs=9"):
        lpfloop.run(SCRIPTED, set={"training.min_pairs": 9999, "recipe.m": 0}, display="none")
    assert capfd.readouterr() == ("", "")
    with lpfloop.open("tiny-rlrf") as run:
        assert run.candidates(iteration=1).filter(kind="sample").collect().height == 36
        assert run.config["recipe"]["m"] == 0


def test_bad_input_writes_nothing(tmp_path):
    with pytest.raises(ConfigError, match=r"prompts\.chunk"):
        lpfloop.run(SCRIPTED, set={"prompts.chunk": 0})
    with pytest.raises(ConfigError, match=r"the configuration: .*polciy"):
        lpfloop.run({"extends": "tiny", "polciy": {}})
    with pytest.raises(ValueError, match="unknown preset or file 'tinny'"):
        lpfloop.run("tinny")
    with pytest.raises(NoSuchRunError, match="no run in"):
        lpfloop.resume()
    assert not (tmp_path / "lake").exists()


def test_configuration_and_key_reach_the_child(tmp_path):
    config = load_config(SCRIPTED, None, (), {})
    engine = config.critic.engine.model_copy(update={"api_key": SecretStr("sk-very-secret")})
    critic = config.critic.model_copy(update={"engine": engine})
    job = Job(config=config.model_copy(update={"critic": critic}), lake=tmp_path, name="a")
    order = as_order(replace(job, fork="b", retry_unscored=True), lift_pause=True)
    values = json.loads(order)
    assert "sk-very-secret" not in json.dumps(values["config"])
    again = job_of(values, tmp_path, {})
    assert again == replace(job, fork="b", retry_unscored=True)
    assert order.count("\n") == 1


SCRIPT = """
import sys, lpfloop
try:
    lpfloop.run(sys.argv[1], name="slow", display="plain")
except KeyboardInterrupt as stopped:
    print(stopped, flush=True)
"""


@pytest.fixture
def gated(tmp_path, monkeypatch):
    monkeypatch.setattr(control, "ANSWER_S", 60.0)
    run = Operated(tmp_path, GATED)
    run.environment["PYTHONPATH"] = PATH
    run.allow(EVALUATED + 1)
    yield run
    run.end()


def begun(run):
    """Start a program that runs the loop, and wait until it samples."""
    program = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(run.config)],
        env=run.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_until(lambda: run.done() >= 1)
    return program


def test_interrupt_and_resume(gated, real_python, environ):
    program = begun(gated)
    program.send_signal(signal.SIGINT)
    wait_until(lambda: ask(gated.run, Command(op="look")).stopping)
    gated.allow(FREE)
    said, _ = program.communicate()
    assert "lpfloop.resume('slow')" in said
    done = gated.done()
    assert 1 <= done < 6
    environ["GATE"] = gated.environment["GATE"]
    with pytest.raises(NothingToTrainOn):
        lpfloop.resume("slow", display="none")
    assert gated.done() == 6
    assert len(gated.events("start")) == 2
