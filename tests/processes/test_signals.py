"""Ctrl-C and SIGTERM: the first drains and commits, the second stops at once."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import EVALUATED, FREE, GATED, SAMPLED, Operated, wait_until

from lpfloop.loop.cli.app import Exit
from lpfloop.loop.daemon import control
from lpfloop.loop.daemon.control import Command, ask

PATIENT = GATED + "shutdown_timeout_s: 600\n"


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Operated]:
    """A run whose third sample waits for permission, and whose stop waits for that sample."""
    monkeypatch.setattr(control, "ANSWER_S", 60.0)
    run = Operated(tmp_path, PATIENT)
    run.allow(EVALUATED + 2)
    yield run
    run.end()


def sampling(run: Operated) -> subprocess.Popen[str]:
    """Start a run, and wait until it works on the third sample."""
    process = run.start("run", *run.options)
    wait_until(lambda: run.asked() == EVALUATED + 3 and run.done() == 2)
    return process


def tell(process: subprocess.Popen[str], run: Operated, number: signal.Signals) -> None:
    """Send a signal, and wait until the run knows about it."""
    process.send_signal(number)
    wait_until(lambda: ask(run.run, Command(op="look")).stopping)


def test_sigterm_drains_and_commits(held):
    process = sampling(held)
    tell(process, held, signal.SIGTERM)
    held.allow(FREE)
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == Exit.STOPPED
    assert "lpfloop resume" in stderr
    # The run committed the requests in flight, and started no others.
    assert (held.done(), held.asked()) == (3, EVALUATED + 3)
    code, _, stderr = held.call("run", *held.options)
    assert code == Exit.NOTHING_TO_TRAIN_ON, stderr
    assert "3 units re-used" in stderr
    assert held.done() == SAMPLED


def test_second_signal_stops_at_once(held):
    process = sampling(held)
    tell(process, held, signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=300)
    assert process.returncode == 128 + signal.SIGTERM
    assert held.done() == 2


def test_interrupt_while_modules_are_imported():
    """With `-X importtime` the interpreter prints each imported module."""
    command = [sys.executable, "-X", "importtime", "-m", "lpfloop", "status"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        told = process.stderr
        assert told is not None
        next(line for line in told if "lpfloop.loop.cli.common" in line)
        process.send_signal(signal.SIGINT)
        rest = told.read()
    assert process.returncode == 130
    assert "Traceback" not in rest
