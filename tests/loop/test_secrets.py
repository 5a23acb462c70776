"""A key is planted wherever it could leak from, and looked for wherever it could have leaked to."""

import base64
import json
import sqlite3
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import polars as pl
import pytest
from operated import CONFIG, EVALUATED, FREE, Operated
from waiting import ended, wait_until

from lpfloop.loop.cli.app import Exit

pytestmark = pytest.mark.crash

KEY = "sk-canary-7f3a91c2d4e8b650"
OTHER = "hf_canary-of-the-environment"


class Tattler(BaseHTTPRequestHandler):
    """An endpoint whose refusals repeat the key that it was sent."""

    refusal = 401

    def do_GET(self):
        self._answer(200, {"data": [{"id": "judge"}]})

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        sent = self.headers["Authorization"]
        encoded = base64.b64encode(sent.encode()).decode()
        told = {"error": {"message": f"bad request with {sent} ({encoded})", "code": sent}}
        self._answer(self.refusal, told)

    def _answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        """Say nothing."""


@pytest.fixture
def endpoint(request):
    handler = type("Refusing", (Tattler,), {"refusal": request.param})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()


@pytest.fixture
def operated(tmp_path):
    run = Operated(tmp_path)
    run.environment["HF_TOKEN"] = OTHER
    yield run
    run.end()


def everything_written(lake):
    """Give the name and the bytes of all that a lake holds, as it lies and as it reads."""
    for path in lake.rglob("*"):
        if not path.is_file():
            continue
        yield path.name, path.read_bytes()
        if path.suffix == ".parquet":
            yield f"rows of {path}", pl.read_parquet(path).write_json().encode()
        if path.suffix == ".sqlite":
            with sqlite3.connect(path) as database:
                yield f"dump of {path}", "\n".join(database.iterdump()).encode()


def command_lines():
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield str(path), path.read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue


def leaks(found):
    """Return the names of the places that hold a key, as it is or as base64 at any offset."""
    needles = [
        form
        for key in (KEY, OTHER)
        for form in (
            key,
            *(base64.b64encode(b" " * n + key.encode())[4:-4].decode() for n in range(3)),
        )
    ]
    return [name for name, data in found if any(needle.encode() in data for needle in needles)]


def test_the_search_finds_a_planted_key(tmp_path):
    pl.DataFrame({"text": [f"Bearer {KEY}"]}).write_parquet(tmp_path / "a.parquet")
    (tmp_path / "b.log").write_text(base64.b64encode(f"Bearer {OTHER}.".encode()).decode())
    assert len(leaks(everything_written(tmp_path))) >= 2


@pytest.mark.parametrize("endpoint", [401, 400], indirect=True, ids=["refused", "unanswerable"])
@pytest.mark.parametrize("planted", ["file", "environment"])
def test_a_key_is_nowhere_to_be_found(operated, endpoint, planted):
    judge = f'critic: {{model: "{endpoint}", engine: {{patience_s: 5}}}}'
    if planted == "file":
        judge = judge.replace("patience_s", f"api_key: {KEY}, patience_s")
    else:
        operated.environment["LPFLOOP_API_KEY"] = KEY
    lines = [line for line in CONFIG.splitlines() if not line.startswith("critic:")]
    operated.config.write_text("\n".join([*lines, judge]))
    operated.allow(EVALUATED - 1)
    pid = operated.detach()
    wait_until(lambda: operated.asked() == EVALUATED)
    assert leaks(command_lines()) == []
    told = operated.call("status", "slow")
    operated.allow(FREE)
    wait_until(lambda: ended(pid))
    assert (operated.run / "logs/daemon.log").read_text()
    told += operated.call("status", "slow", "--json")
    told += operated.call("critiques", "slow", "--json")
    again = operated.call("resume", "slow")
    assert again[0] in (Exit.FAULT, Exit.BAD_INPUT, Exit.NOTHING_TO_TRAIN_ON)
    assert again[2]
    said = [(text, text.encode()) for text in (*told, *again) if isinstance(text, str)]
    assert leaks(said) == []
    assert leaks(everything_written(operated.lake)) == []


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--set", f"policy.engine.api_key={KEY}"],
        ["run", "--detach", "--set", f" critic.engine.api_key ={KEY}"],
        ["launch", "slurm", "--print", "--run", "a", "--", "--set", f"policy.engine.api_key={KEY}"],
        ["launch", "slurm", "--print", "--run", "a", "--", f"--set=policy.engine.api_key={KEY}"],
    ],
)
def test_a_key_on_the_command_line_is_refused(operated, words):
    code, stdout, stderr = operated.call(*words)
    assert code == Exit.BAD_INPUT
    assert "LPFLOOP_API_KEY" in stderr
    assert leaks([("stdout", stdout.encode()), ("stderr", stderr.encode())]) == []
    assert not operated.lake.exists()


def test_a_password_in_a_url_is_refused_and_not_repeated(operated):
    code, _, stderr = operated.call("run", "--critic", f"https://joe:{KEY}@127.0.0.1:9/v1")
    assert code == Exit.BAD_INPUT
    assert "LPFLOOP_API_KEY" in stderr
    assert KEY not in stderr
