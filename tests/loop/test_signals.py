"""Ctrl-C and SIGTERM: the first drains and commits, the second stops at once."""

import signal
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from operated import CONFIG, EVALUATED, FREE, SAMPLED, Operated
from waiting import wait_until

from lpfloop.loop.cli.app import Exit
from lpfloop.loop.daemon import control
from lpfloop.loop.daemon.control import Look, ask

pytestmark = pytest.mark.crash

PATIENT = CONFIG + "drain_s: 600\n"


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Operated]:
    """A run whose third sample has its answer when more is allowed, and waits for it on a stop."""
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
    """Send a signal, and wait until the run knows that it is to stop."""
    process.send_signal(number)
    wait_until(lambda: ask(run.run, Look()).stopping)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_drains_commits_and_exits_as_resumable(held, number):
    process = sampling(held)
    tell(process, held, number)
    held.allow(FREE)
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == Exit.STOPPED
    assert "lpfloop resume" in stderr
    assert "Traceback" not in stderr
    # What was in flight is committed; nothing else began.
    assert (held.done(), held.asked()) == (3, EVALUATED + 3)
    code, _, stderr = held.call("run", *held.options)
    assert code == Exit.NOTHING_TO_TRAIN_ON, stderr
    assert "3 units re-used" in stderr
    assert held.done() == SAMPLED


def test_a_second_signal_stops_at_once(held):
    process = sampling(held)
    tell(process, held, signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=300)
    assert process.returncode == 128 + signal.SIGTERM
    assert held.done() == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_does_not_end_in_time_is_given_up(tmp_path, number):
    run = Operated(tmp_path, CONFIG + "drain_s: 0.1\n")
    run.allow(EVALUATED + 2)
    process = sampling(run)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == Exit.STOPPED
    assert "lpfloop resume" in stderr
    assert "Traceback" not in stderr
    assert run.done() == 2
    run.allow(FREE)
    code, _, stderr = run.call("resume", "slow")
    assert code == Exit.NOTHING_TO_TRAIN_ON, stderr
    assert run.done() == SAMPLED


class Silent(BaseHTTPRequestHandler):
    """An endpoint that takes every question and answers none."""

    def do_GET(self):
        body = b'{"data": [{"id": "judge"}]}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        self.server.asked.set()
        self.server.over.wait()

    def log_message(self, *arguments):
        """Say nothing."""


@pytest.fixture
def silent():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Silent)
    server.asked, server.over = threading.Event(), threading.Event()
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.over.set()
    server.shutdown()
    server.server_close()


def test_an_endpoint_that_never_answers_is_not_waited_for(tmp_path, silent):
    lines = [line for line in CONFIG.splitlines() if not line.startswith("critic:")]
    critic = f'critic: {{model: "http://127.0.0.1:{silent.server_port}/v1"}}'
    run = Operated(tmp_path, "\n".join([*lines, critic, "drain_s: 0.1"]))
    process = run.start("run", *run.options)
    assert silent.asked.wait(300)
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == Exit.STOPPED, stderr
    assert "Traceback" not in stderr
