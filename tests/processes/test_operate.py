"""A run is started, inspected, paused, changed, stopped and continued from other terminals."""

import json
import os
import signal
import stat
from contextlib import suppress
from pathlib import Path

import pytest
from processes import EVALUATED, FREE, GATED, SAMPLED, Operated, ended, wait_until

from lpfloop.loop.cli.app import Exit
from lpfloop.loop.daemon import control
from lpfloop.loop.daemon.status import stop_run


@pytest.fixture
def slow(tmp_path):
    run = Operated(tmp_path)
    yield run
    run.end()


def hold_at(run, samples):
    """Start a daemon and wait until it works on the sample after `samples` committed ones."""
    run.allow(EVALUATED + samples)
    pid = run.detach()
    wait_until(lambda: run.asked() == EVALUATED + samples + 1)
    wait_until(lambda: run.done() == samples)
    return pid


def modes_below(folder):
    """Return the permission bits of `folder` and everything below, while a daemon writes there."""
    modes = {}
    for place, folders, files in os.walk(folder):
        for path in [Path(place), *(Path(place, name) for name in (*folders, *files))]:
            # A part file has a temporary name until it is complete.
            with suppress(FileNotFoundError):
                modes[path] = stat.S_IMODE(path.lstat().st_mode)
    return modes


def state(run):
    code, stdout, stderr = run.call("status", "slow", "--json")
    assert code == 0, stderr
    return json.loads(stdout)


def test_daemon_outlives_its_terminal(slow):
    pid = hold_at(slow, 2)
    assert os.getsid(pid) == pid
    modes = modes_below(slow.run)
    assert (slow.run / "control.sock") in modes
    assert {p: oct(mode) for p, mode in modes.items() if mode & 0o077} == {}
    found = state(slow)
    assert found["daemon"]["pid"] == pid
    assert found["daemon"]["state"] == "running"
    (sample,) = [
        s for turn in found["iterations"] for s in turn["stages"] if s["stage"] == "sample"
    ]
    counted = {name: sample[name] for name in ("planned", "done", "pending", "rows", "unscored")}
    assert counted == {"planned": SAMPLED, "done": 2, "pending": 4, "rows": 2, "unscored": 0}
    assert found["spend"]["tokens"]["used"] > 0
    slow.allow(FREE)
    wait_until(lambda: ended(pid))
    assert slow.done() == SAMPLED
    assert (slow.run / "logs" / "daemon.log").read_text().count("nothing to train on") == 1
    for command in (["pause"], ["stop"], ["ctl", "get"]):
        code, stdout, stderr = slow.call(command[0], "slow", *command[1:])
        assert (code, stdout) == (Exit.BAD_INPUT, "")
        assert "no daemon works on run slow" in stderr


def test_daemon_that_cannot_start(slow):
    pid = hold_at(slow, 1)
    code, stdout, stderr = slow.call("run", *slow.options, "--detach")
    assert code == Exit.BAD_INPUT
    assert f"pid {pid}" in stderr
    assert stdout == ""
    missing = slow.config.with_name("missing.jsonl")
    code, _, stderr = slow.call("run", "--prompts", str(missing), "--run", "b", "--detach")
    assert code == Exit.BAD_INPUT
    assert "missing.jsonl" in stderr
    assert not (slow.lake / "runs" / "b").exists()


def test_stop_drains(slow):
    # The run waits long enough for commands on a busy machine to see it drain.
    slow.config.write_text(f"{GATED}shutdown_timeout_s: 600\n")
    pid = hold_at(slow, 2)
    stopping = slow.start("stop", "slow")
    wait_until(lambda: state(slow)["daemon"]["state"] == "stopping")
    slow.allow(FREE)
    stdout, stderr = stopping.communicate()
    assert stopping.returncode == 0, stderr
    assert stdout == f"{pid} stopped\n"
    assert ended(pid)
    assert slow.done() == 3  # The run committed the requests in flight, and started no others.
    assert slow.asked() == EVALUATED + 3
    assert state(slow)["daemon"]["state"] == "ended"


def test_hanging_daemon_is_killed(slow, monkeypatch):
    pid = hold_at(slow, 2)
    os.kill(pid, signal.SIGSTOP)
    monkeypatch.setattr(control, "ANSWER_S", 0.05)
    with pytest.raises(control.ControlError, match="--now"):
        stop_run(slow.run, now=False, say=print)
    assert not ended(pid)
    assert stop_run(slow.run, now=True, say=print) == pid
    assert ended(pid)


def test_pause_until_resume(slow):
    pid = hold_at(slow, 2)
    assert slow.call("pause", "slow")[:2] == (0, f"{pid} paused\n")
    slow.allow(FREE)
    wait_until(lambda: slow.done() == 3)  # The paused run commits the unit in flight.
    assert state(slow)["daemon"]["state"] == "paused"
    assert slow.asked() == EVALUATED + 3
    code, stdout, stderr = slow.call("resume", "slow")
    assert (code, stdout) == (0, f"{pid} running\n"), stderr
    wait_until(lambda: ended(pid))
    assert slow.done() == SAMPLED


def test_setting_survives_sigkill(slow):
    pid = hold_at(slow, 2)
    assert slow.call("resume", "slow", "--set", "budget.tokens=12345678")[0] == 0
    assert state(slow)["spend"]["tokens"]["limit"] == 12345678
    assert slow.call("resume", "slow", "--iterations", "9")[0] == Exit.BAD_INPUT
    code, stdout, _ = slow.call(
        "ctl", "slow", "set", "critic.engine.concurrency=7", "shutdown_timeout_s=9"
    )
    assert (code, stdout) == (0, "critic.engine.concurrency=7\nshutdown_timeout_s=9.0\n")
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: ended(pid))
    slow.detach("resume", "slow")
    assert slow.call("ctl", "slow", "get", "critic.engine.concurrency", "shutdown_timeout_s")[
        :2
    ] == (
        0,
        "critic.engine.concurrency=7\nshutdown_timeout_s=9.0\n",
    )
