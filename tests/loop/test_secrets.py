"""A key is planted wherever it could leak from, and looked for wherever it could have leaked to."""

import base64
import json
import sqlite3
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import polars as pl
import pytest
from operated import CONFIG, EVALUATED, FREE, Operated
from paid import BASE, ENGINE, GREEDY, KINDS, paid_config
from waiting import ended, wait_until

from lpfloop.loop.cli.app import Exit
from lpfloop.policies.engines.engine import Request
from lpfloop.stores.records import Message

pytestmark = pytest.mark.crash

KEY = "sk-canary-7f3a91c2d4e8b650"
OTHER = "hf_canary-of-the-environment"
USAGE = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
FEW = [f"--set=prompts.{name}" for name in ("per_iteration=6", "evaluated=2", "chunk=2")]
CRITIC = 'critic: {engine: {kind: scripted, script: "scripts:critic"}}'
POLICY = f"""
policy: {{model: "URL", {ENGINE}}}
{CRITIC}
recipe: {{name: rlrf, n: 2, m: 1}}
"""


class Tattler(BaseHTTPRequestHandler):
    """An endpoint that repeats the key that it was sent: in refusals, or in answers."""

    refusal = 401
    answer = None

    def do_GET(self):
        self._answer(200, {"data": [{"id": "m"}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        sent = self.headers["Authorization"]
        told = f"{sent} ({base64.b64encode(sent.encode()).decode()}, {quote(sent)})"
        if self.answer is None:
            error = {"error": {"message": f"bad request with {told}", "code": sent}}
            self._answer(self.refusal, error)
            return
        message = {"role": "assistant", "content": f"{told}\n{self.answer(body)}\n{told}"}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        rest = {"id": sent, "object": "chat.completion", "created": 1, "usage": USAGE}
        self._answer(200, {**rest, "model": sent, "system_fingerprint": sent, "choices": [choice]})

    def _answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        """Say nothing."""


@contextmanager
def tattling(**how):
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Telling", (Tattler,), how))
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def endpoint(request):
    with tattling(refusal=request.param) as url:
        yield url


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


def leaks(found, *keys):
    """Return the names of the places that hold a key, as it is or as base64 at any offset."""
    needles = [
        form
        for key in (keys or (KEY, OTHER))
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


def answer_of(kind):
    """Return how a server answers in a role, as a function of the request's body."""

    def say(_, body):
        shown = tuple(Message(role=m["role"], content=m["content"]) for m in body["messages"])
        seed = body.get("seed", 0)
        asked = Request(request_id="", messages=shown, seed=seed)
        return "5" if kind == "candidates" else KINDS[kind][0](asked, GREEDY)

    return say


def configured(folder, kind, url):
    """Return the configuration of a small run whose models of one kind are at a URL."""
    if kind == "candidates":
        return BASE.replace(BASE.splitlines()[2], "") + POLICY.replace("URL", url)
    return paid_config(folder, kind, url)


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("candidates", KEY),
        ("candidates", f"/{KEY}+="),
        ("candidates", "7301948265510394"),
        *((kind, KEY) for kind in KINDS),
    ],
    ids=["candidates", "a path", "digits", *KINDS],
)
def test_a_key_in_an_answer_is_not_stored(operated, tmp_path, kind, key):
    operated.environment["LPFLOOP_API_KEY"] = key
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"{n} + 1?"}) + "\n" for n in range(20)))
    # A reviewer is asked about every prompt: it gets few.
    source = ["--set", f"prompts.source={prompts}"] if kind == "reviews" else []
    with tattling(answer=answer_of(kind)) as url:
        operated.config.write_text(configured(tmp_path, kind, url))
        told = operated.call("run", *operated.options, *FEW, *source)
    assert told[0] in (Exit.DONE, Exit.NOTHING_TO_TRAIN_ON), told[2]
    found = list(everything_written(operated.lake))
    assert any(b"[hidden]" in data for _, data in found)
    assert leaks([*found, *((text, text.encode()) for text in told[1:])], key, OTHER) == []


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet", "table"])
def test_a_key_in_a_row_is_not_shown(holding, form):
    nested = "select text, struct_pack(a := [text]) as b from candidates"
    assert "[hidden]" in holding("sql", nested, "--format", form)
    holding("candidates", "held", "--format", form)


def test_a_key_in_a_row_is_not_shown_on_its_page(holding):
    (row,) = json.loads(holding("candidates", "held", "--json"))
    assert "[hidden]" in row["text"]
    assert "[hidden]" in holding("show", row["candidate_id"])
    assert "[hidden]" in holding("show", row["candidate_id"], "--json")


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet", "ultrafeedback", "inspect"])
def test_a_key_in_a_row_is_not_exported(holding, tmp_path, form):
    holding("export", "held", "candidates", "--as", form, "-o", str(tmp_path / "out"))
    found = list(everything_written(tmp_path / "out"))
    assert leaks(found) == []
    assert len(found) >= 3


@pytest.fixture
def holding(operated, tmp_path):
    """A lake with a key in a row, as older versions stored it; call commands that know the key."""
    row = {"id": "p1", "prompt": "Key?", "response": f"It is {KEY}.", "model": "m"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    code, _, stderr = operated.call("import", str(tmp_path / "rows.jsonl"), "--run", "held")
    assert code == 0, stderr
    assert leaks(everything_written(operated.lake))
    operated.environment["LPFLOOP_API_KEY"] = KEY

    def call(*words):
        process = operated.start(*words, text=False)
        said = process.communicate(timeout=300)
        assert process.returncode == 0, said[1]
        rows = pl.read_parquet(said[0]).write_json() if said[0].startswith(b"PAR1") else ""
        assert leaks([("stdout", said[0]), ("stderr", said[1]), ("rows", rows.encode())]) == []
        return said[0].decode(errors="replace") + rows

    return call


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--set", f"policy.engine.api_key={KEY}"],
        ["run", "--detach", "--set", f" critic.engine.api_key ={KEY}"],
        ["launch", "slurm", "--run", "a", "--", "--set", f"policy.engine.api_key={KEY}"],
        ["launch", "slurm", "--run", "a", "--", f"--set=policy.engine.api_key={KEY}"],
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
