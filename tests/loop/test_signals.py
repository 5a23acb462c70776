"""Ctrl-C and SIGTERM: the first drains and commits, the second stops at once."""

import os
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from operated import CONFIG as CONFIG_THAT_WAITS
from operated import EVALUATED, FREE, SAMPLED, Operated
from waiting import wait_until

from lpfloop.loop.cli.app import Exit
from lpfloop.loop.lake.query.runs import open_run

pytestmark = pytest.mark.crash

SUPPORT = Path(__file__).parent.parent / "support"
CONFIG = """
extends: tiny
policy: {engine: {kind: scripted, script: "scripts:slow_policy"}}
critic: {engine: {kind: scripted, script: "scripts:critic"}}
reward: {model: none}
prompts: {per_iteration: 60, evaluated: 3, deciding: 3, chunk: 5}
training: {min_pairs: 100000}
recipe: {name: rlrf, n: 4, m: 1}
"""


@pytest.fixture
def start(tmp_path):
    config = tmp_path / "slow.yaml"
    config.write_text(CONFIG)
    options = ["--config", str(config), "--run", "slow", "--lake", str(tmp_path / "lake")]

    def begin():
        return subprocess.Popen(
            [sys.executable, "-m", "lpfloop", "run", *options],
            env={**os.environ, "PYTHONPATH": str(SUPPORT)},
            stderr=subprocess.PIPE,
            text=True,
        )

    return begin


def sampled(lake):
    """How many units of the sampling stage are committed."""
    if not (lake / "runs" / "slow" / "journal.sqlite").exists():
        return 0
    run = open_run(lake, "slow")
    done = [stage.done for stage in run.journal.stages() if stage.stage == "sample"]
    run.close()
    return sum(done)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_drains_commits_and_exits_as_resumable(start, tmp_path, number):
    process = start()
    wait_until(lambda: sampled(tmp_path / "lake"))
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == Exit.STOPPED
    assert "lpfloop resume" in stderr
    assert "Traceback" not in stderr
    before = sampled(tmp_path / "lake")
    assert 0 < before < 12
    again = start()
    _, stderr = again.communicate(timeout=120)
    assert again.returncode == Exit.NOTHING_TO_TRAIN_ON, stderr
    assert f"{before} units re-used" in stderr
    assert sampled(tmp_path / "lake") == 12


def test_a_second_signal_stops_at_once(start, tmp_path):
    process = start()
    wait_until(lambda: sampled(tmp_path / "lake"))
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_does_not_end_in_time_is_given_up(tmp_path, number):
    run = Operated(tmp_path, CONFIG_THAT_WAITS + "drain_s: 0.1\n")
    run.allow(EVALUATED + 2)
    process = run.start("run", *run.options)
    wait_until(lambda: run.asked() == EVALUATED + 3 and run.done() == 2)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
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
    lines = [line for line in CONFIG_THAT_WAITS.splitlines() if not line.startswith("critic:")]
    critic = f'critic: {{model: "http://127.0.0.1:{silent.server_port}/v1"}}'
    run = Operated(tmp_path, "\n".join([*lines, critic, "drain_s: 0.1"]))
    process = run.start("run", *run.options)
    assert silent.asked.wait(60)
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == Exit.STOPPED, stderr
    assert "Traceback" not in stderr
