"""Planted keys appear nowhere in the files that a run writes."""

import base64
import json
import sqlite3
import threading
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import polars as pl
import pytest
from http_server import BASE, ENGINE, GREEDY, KINDS, paid_config
from processes import EVALUATED, FREE, GATED, Operated, ended, wait_until
from typer.testing import CliRunner

from lpfloop.configs import secrecy
from lpfloop.loop.cli.app import Exit, app
from lpfloop.policies.engines.engine import Request
from lpfloop.stores.records import Message

KEY = "sk-canary-7f3a91c2d4e8b650"
OTHER = "hf_canary-of-the-environment"
USAGE = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
FEW = ("per_iteration=6", "max_test=2", "chunk=2", "parts=null")
POLICY = f"""
policy: {{model: "URL", {ENGINE}}}
critic: {{engine: {{kind: scripted, script: "scripts:critic"}}}}
recipe: {{name: rlrf, n: 2, m: 1}}
"""


class Tattler(BaseHTTPRequestHandler):
    """An endpoint that repeats its key in every reply; it refuses requests if `answer` is None."""

    answer = None

    def do_GET(self):
        self._answer(200, {"data": [{"id": "m"}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        sent = self.headers["Authorization"]
        said = f"{sent} ({base64.b64encode(sent.encode()).decode()}, {quote(sent)})"
        if self.answer is None:
            return self._answer(401, {"error": {"message": f"bad request with {said}"}})
        message = {"role": "assistant", "content": f"{said}\n{self.answer(body)}\n{said}"}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        rest = {"id": sent, "object": "chat.completion", "created": 1, "usage": USAGE}
        told = {**rest, "model": sent, "system_fingerprint": sent, "choices": [choice]}
        return self._answer(200, told)

    def _answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        """Log nothing."""


@contextmanager
def tattling(answer):
    handler = type("Telling", (Tattler,), {"answer": answer})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def call(environ, tmp_path):
    """Call commands; each reads the key from the environment at its start."""
    environ["LPFLOOP_LAKE"] = str(tmp_path / "lake")

    def called(*words):
        secrecy.hide_own_key(environ)
        found = CliRunner().invoke(app, [str(word) for word in words])
        return found.exit_code, found.stdout_bytes, found.stderr_bytes

    return called


def everything_written(lake):
    """Return the names and bytes of all files in a lake, raw and decoded."""
    for path in lake.rglob("*"):
        if not path.is_file():
            continue
        yield path.name, path.read_bytes()
        if path.suffix == ".parquet":
            yield f"rows of {path}", pl.read_parquet(path).write_json().encode()
        if path.suffix == ".sqlite":
            with closing(sqlite3.connect(path)) as database:
                yield f"dump of {path}", "\n".join(database.iterdump()).encode()


def leaks(found, key):
    """Return the names of the places with a key, as text or as base64 at any offset."""
    shifted = (base64.b64encode(b" " * n + key.encode())[4:-4].decode() for n in range(3))
    needles = [key, *shifted]
    return [name for name, data in found if any(needle.encode() in data for needle in needles)]


def answer_of(kind):
    """Return how a server answers in a role, as a function of the request's body."""

    def say(_, body):
        shown = tuple(Message(role=m["role"], content=m["content"]) for m in body["messages"])
        asked = Request(request_id="", messages=shown, seed=body.get("seed", 0))
        return "5" if kind == "candidates" else KINDS[kind][0](asked, GREEDY)

    return say


def configured(folder, kind, url):
    """Return the configuration of a small run with models of one kind at a URL."""
    if kind == "candidates":
        return BASE.replace(BASE.splitlines()[2], "") + POLICY.replace("URL", url)
    return paid_config(folder, kind, url)


def test_keys_in_answers_are_not_stored(call, environ, tmp_path, subtests):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"{n} + 1?"}) + "\n" for n in range(20)))
    settings = [f"--set=prompts.{setting}" for setting in (*FEW, f"source={prompts}")]
    environ["LPFLOOP_API_KEY"] = KEY
    for kind in ("candidates", *KINDS):
        lake = tmp_path / kind
        lake.mkdir()
        environ["LPFLOOP_LAKE"] = str(lake)
        with subtests.test(kind=kind), tattling(answer_of(kind)) as url:
            config = tmp_path / f"{kind}.yaml"
            config.write_text(configured(tmp_path, kind, url))
            code, *said = call("run", "--config", config, "--run", "a", *settings)
            assert code in (Exit.DONE, Exit.NOTHING_TO_TRAIN_ON), said
            found = list(everything_written(lake))
            assert any(b"[hidden]" in data for _, data in found)
            assert leaks([*found, *enumerate(said)], KEY) == []


def test_keys_on_the_command_line_are_refused(call, tmp_path, subtests):
    for words in (
        ("run", "--set", f"policy.engine.api_key={KEY}"),
        ("launch", "slurm", "--run", "a", "--", f"--set=policy.engine.api_key={KEY}"),
        ("run", "--critic", f"https://joe:{KEY}@127.0.0.1:9/v1"),
    ):
        with subtests.test(words=words[:3]):
            code, stdout, stderr = call(*words)
            assert code == Exit.BAD_INPUT
            assert b"LPFLOOP_API_KEY" in stderr
            assert leaks([("stdout", stdout), ("stderr", stderr)], KEY) == []
            assert not (tmp_path / "lake").exists()


@pytest.fixture
def operated(tmp_path):
    run = Operated(tmp_path)
    run.environment |= {"HF_TOKEN": OTHER, "LPFLOOP_API_KEY": KEY}
    yield run
    run.end()


@pytest.mark.crash
def test_key_of_a_daemon_is_nowhere(operated):
    with tattling(None) as url:
        judge = f'critic: {{model: "{url}", engine: {{retry_timeout_s: 5}}}}'
        lines = [line for line in GATED.splitlines() if not line.startswith("critic:")]
        operated.config.write_text("\n".join([*lines, judge]))
        operated.allow(EVALUATED - 1)
        pid = operated.detach()
        wait_until(lambda: operated.asked() == EVALUATED)
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        said = [*operated.call("status", "slow")]
        operated.allow(FREE)
        wait_until(lambda: ended(pid))
        assert (operated.run / "logs/daemon.log").read_text()
        said += operated.call("status", "slow", "--json")
        again = operated.call("resume", "slow")
    assert again[0] in (Exit.FAULT, Exit.BAD_INPUT, Exit.NOTHING_TO_TRAIN_ON)
    assert again[2]
    texts = [(text, text.encode()) for text in (*said, *again) if isinstance(text, str)]
    found = [("command line", command), *texts, *everything_written(operated.lake)]
    assert leaks(found, KEY) == leaks(found, OTHER) == []
