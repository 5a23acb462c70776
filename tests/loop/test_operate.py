"""A run that is started, looked at, paused, changed, stopped and continued from other terminals."""

import json
import os
import signal
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from operated import CONFIG, EVALUATED, FREE, SAMPLED, Operated
from waiting import ended, wait_until

from lpfloop.loop.cli.app import Exit
from lpfloop.loop.daemon import control
from lpfloop.loop.daemon.status import stop_run

pytestmark = pytest.mark.crash


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
    """The permission bits of `folder` and of all below it, while a daemon writes there."""
    modes = {}
    for place, folders, files in os.walk(folder):
        for path in [Path(place), *(Path(place, name) for name in (*folders, *files))]:
            # A part that is written has a name of its own until it is whole.
            with suppress(FileNotFoundError):
                modes[path] = stat.S_IMODE(path.lstat().st_mode)
    return modes


def state(run):
    code, stdout, stderr = run.call("status", "slow", "--json")
    assert code == 0, stderr
    return json.loads(stdout)


def test_a_daemon_goes_on_without_its_terminal_and_says_how_far_it_is(slow):
    pid = hold_at(slow, 2)
    assert os.getsid(pid) == pid
    found = state(slow)
    assert found["daemon"]["pid"] == pid
    assert found["daemon"]["state"] == "running"
    (sample,) = [
        s for turn in found["iterations"] for s in turn["stages"] if s["stage"] == "sample"
    ]
    counted = {name: sample[name] for name in ("planned", "done", "owed", "rows", "unscored")}
    assert counted == {"planned": SAMPLED, "done": 2, "owed": 4, "rows": 2, "unscored": 0}
    assert {"retries", "tokens", "rate", "eta_s", "calls"} <= set(sample)
    assert found["spend"]["tokens"]["used"] > 0
    assert found["spend"]["tokens"]["limit"] is None
    code, stdout, _ = slow.call("status", "slow")
    assert code == 0
    assert f"pid {pid}" in stdout
    slow.allow(FREE)
    wait_until(lambda: ended(pid))
    assert slow.done() == SAMPLED
    assert (slow.run / "logs" / "daemon.log").read_text().count("nothing to train on") == 1


def test_a_daemon_that_can_not_start_tells_why_with_its_exit_code(slow):
    pid = hold_at(slow, 1)
    code, stdout, stderr = slow.call("run", *slow.options, "--detach")
    assert code == Exit.BAD_INPUT
    assert f"pid {pid}" in stderr
    assert stdout == ""
    code, _, stderr = slow.call("run", "--config", "nowhere", "--detach")
    assert code == Exit.BAD_INPUT
    assert "nowhere" in stderr
    missing = slow.config.with_name("missing.jsonl")
    code, _, stderr = slow.call("run", "--prompts", str(missing), "--run", "b", "--detach")
    assert code == Exit.BAD_INPUT
    assert "missing.jsonl" in stderr
    assert not (slow.lake / "runs" / "b").exists()


def test_a_stop_drains_and_waits_until_the_process_is_gone(slow):
    # It has to wait until commands on a busy machine have seen it do so.
    slow.config.write_text(f"{CONFIG}drain_s: 600\n")
    pid = hold_at(slow, 2)
    stopping = slow.start("stop", "slow")
    wait_until(lambda: state(slow)["daemon"]["state"] == "stopping")
    slow.allow(FREE)
    stdout, stderr = stopping.communicate(timeout=300)
    assert stopping.returncode == 0, stderr
    assert stdout == f"{pid} stopped\n"
    assert ended(pid)
    assert slow.done() == 3  # What was in flight is committed; nothing else began.
    assert slow.asked() == EVALUATED + 3
    assert state(slow)["daemon"]["state"] == "ended"


def test_a_stop_gives_up_what_does_not_end_in_time(slow):
    pid = hold_at(slow, 2)
    assert slow.call("ctl", "slow", "set", "drain_s=0.1")[0] == 0
    code, _, stderr = slow.call("stop", "slow")
    assert code == 0, stderr
    assert ended(pid)
    assert slow.done() == 2
    assert slow.events("end")[-1] == "Stopped: a stop was asked for"


def test_a_stop_now_waits_for_nothing(slow):
    pid = hold_at(slow, 2)
    code, _, stderr = slow.call("stop", "slow", "--now")
    assert code == 0, stderr
    assert ended(pid)
    assert slow.done() == 2


def test_a_daemon_that_hangs_is_killed_by_stop_now(slow, monkeypatch):
    pid = hold_at(slow, 2)
    os.kill(pid, signal.SIGSTOP)
    monkeypatch.setattr(control, "ANSWER_S", 0.05)
    with pytest.raises(control.ControlError, match="--now"):
        stop_run(slow.run, now=False, say=print)
    assert not ended(pid)
    assert stop_run(slow.run, now=True, say=print) == pid
    assert ended(pid)


def test_a_pause_admits_no_unit_and_lasts_until_resume(slow):
    pid = hold_at(slow, 2)
    assert slow.call("pause", "slow")[:2] == (0, f"{pid} paused\n")
    slow.allow(FREE)
    wait_until(lambda: slow.done() == 3)  # The one in flight is committed while the run is paused.
    assert state(slow)["daemon"]["state"] == "paused"
    assert slow.asked() == EVALUATED + 3
    code, stdout, stderr = slow.call("resume", "slow")
    assert (code, stdout) == (0, f"{pid} running\n"), stderr
    wait_until(lambda: ended(pid))
    assert slow.done() == SAMPLED


def test_a_pause_survives_a_crash_and_another_start(slow):
    pid = hold_at(slow, 2)
    assert slow.call("pause", "slow")[:2] == (0, f"{pid} paused\n")
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: ended(pid))
    assert "paused" in state(slow)["daemon"]["state"]
    slow.allow(FREE)
    again = slow.detach()
    assert state(slow)["daemon"]["state"] == "paused"
    assert slow.asked() == EVALUATED + 3
    # It says so after it has told who started it that it has the run.
    wait_until(lambda: "is paused" in (slow.run / "logs" / "daemon.log").read_text())
    assert slow.call("stop", "slow")[0] == 0
    assert ended(again)
    code, _, stderr = slow.call("resume", "slow")
    assert code == Exit.NOTHING_TO_TRAIN_ON, stderr
    assert slow.done() == SAMPLED
    assert "re-uses" in stderr
    assert "sample 2/6" in stderr
    assert "will make 4 units of iteration 1, sample" in stderr


def test_a_setting_survives_a_crash(slow):
    pid = hold_at(slow, 2)
    code, stdout, _ = slow.call("ctl", "slow", "set", "critic.engine.concurrency=7", "drain_s=9")
    assert (code, stdout) == (0, "critic.engine.concurrency=7\ndrain_s=9.0\n")
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: ended(pid))
    slow.detach("resume", "slow")
    assert slow.call("ctl", "slow", "get", "critic.engine.concurrency", "drain_s")[:2] == (
        0,
        "critic.engine.concurrency=7\ndrain_s=9.0\n",
    )


def test_what_is_not_live_is_refused_in_one_sentence(slow):
    hold_at(slow, 1)
    for words in (["recipe.n=3"], ["drain_s=many"], ["drain_s"], []):
        code, stdout, stderr = slow.call("ctl", "slow", "set", *words)
        assert code == Exit.BAD_INPUT
        assert stderr.startswith("error: ")
        assert stderr.count("\n") == 1
        assert stdout == ""


def test_a_running_daemon_takes_a_higher_budget_but_no_more_iterations(slow):
    hold_at(slow, 1)
    assert slow.call("resume", "slow", "--max-tokens", "12345678")[0] == 0
    assert state(slow)["spend"]["tokens"]["limit"] == 12345678
    code, _, stderr = slow.call("resume", "slow", "--iterations", "9")
    assert code == Exit.BAD_INPUT
    assert "--iterations" in stderr


def test_a_budget_ends_a_run_cleanly_and_resume_lifts_it(tmp_path):
    run = Operated(tmp_path, CONFIG + "budget: {judge_calls: 0}\n")
    code, _, stderr = run.call("run", *run.options)
    assert code == Exit.STOPPED
    assert "--max-judge-calls" in stderr
    code, _, stderr = run.call("resume", "slow", "--max-judge-calls", "1000")
    assert code == Exit.NOTHING_TO_TRAIN_ON, stderr


def test_watch_shows_the_run_until_it_ends(slow):
    pid = hold_at(slow, 2)
    watching = slow.start("watch", "slow")
    assert "watching run slow" in watching.stderr.readline()
    slow.allow(FREE)
    wait_until(lambda: ended(pid))
    stdout, stderr = watching.communicate(timeout=300)
    assert watching.returncode == 0, stderr
    assert "no process works on run slow: NothingToTrainOn" in stdout
    assert "6/6 units" in stderr


def test_ctrl_c_leaves_watch_and_not_the_run(slow):
    pid = hold_at(slow, 2)
    watching = slow.start("watch", "slow")
    assert "watching run slow" in watching.stderr.readline()
    watching.send_signal(signal.SIGINT)
    _, stderr = watching.communicate(timeout=300)
    assert watching.returncode == 0
    assert "run slow goes on" in stderr
    assert not ended(pid)


@pytest.mark.parametrize("command", [["pause"], ["stop"], ["ctl", "get"]])
def test_operating_a_run_that_nobody_works_on_says_so(slow, command):
    slow.call("run", *slow.options)
    code, stdout, stderr = slow.call(command[0], "slow", *command[1:])
    assert code == Exit.BAD_INPUT
    assert "no daemon works on run slow" in stderr
    assert command == ["stop"] or "continues it unless it is finished" in stderr
    assert stdout == ""


def test_only_the_owner_can_read_a_run(slow):
    hold_at(slow, 1)
    modes = modes_below(slow.run)
    assert (slow.run / "control.sock") in modes
    assert {p: oct(mode) for p, mode in modes.items() if mode & 0o077} == {}


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_reader_that_goes_away_does_not_stop_the_run(slow, closed):
    reading, writing = os.pipe()
    process = slow.start("run", *slow.options, **{closed: writing})
    os.close(writing)
    os.close(reading)
    process.communicate(timeout=300)
    assert process.returncode == Exit.NOTHING_TO_TRAIN_ON
    assert slow.done() == SAMPLED


def test_a_run_without_standard_streams_keeps_its_journal_clean(slow, real_python):
    command = f"exec {sys.executable} -m lpfloop run {' '.join(slow.options)} <&- >&- 2>&-"
    done = subprocess.run(["sh", "-c", command], env=slow.environment, check=False, timeout=300)
    assert done.returncode == Exit.NOTHING_TO_TRAIN_ON
    assert slow.done() == SAMPLED


def test_a_log_that_can_not_be_written_does_not_stop_the_run(slow):
    slow.call("run", *slow.options, "--iterations", "0")
    (slow.run / "logs" / "run.jsonl").unlink()
    (slow.run / "logs" / "run.jsonl").mkdir()
    assert slow.call("run", *slow.options)[0] == Exit.NOTHING_TO_TRAIN_ON
    assert slow.done() == SAMPLED
