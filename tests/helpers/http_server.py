"""OpenAI-compatible endpoints on loopback, in threads of the test.

`listening` is the server. It serves an endpoint that answers by a function, a critic, an endpoint
with batch files, and a judge that counts its replies.
"""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

import judges
import scripts
from processes import ended, wait_until

from lpfloop.critics.quality.prompt_review import ASPECTS
from lpfloop.loop.daemon.control import Command, ControlError, NoDaemonError, ask
from lpfloop.loop.run.request_dispatcher import SLICE
from lpfloop.policies.engines.engine import Request, Sampling
from lpfloop.stores.journal_reader import Cost, Reader
from lpfloop.stores.records import Message

MODELS = {"object": "list", "data": [{"id": "m", "object": "model"}]}


class Send(Protocol):
    """Sends a reply: bytes unchanged, anything else as JSON."""

    def __call__(self, value: Any, status: int = 200) -> None: ...


@contextmanager
def listening(reply: Callable[[str, bytes, Send], None]) -> Iterator[str]:
    """Serve the replies of `reply` to a path below /v1 and a request's body; yield the URL.

    A client without a reply loses its connection.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _serve(self) -> None:
            self._closes, self.close_connection = self.close_connection, True
            data = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            reply(self.path.removeprefix("/v1/"), data, self._send)

        do_GET = do_POST = _serve  # noqa: N815 -- http.server's names

        def _send(self, value: Any, status: int = 200) -> None:
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            self.close_connection = self._closes

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    class Server(ThreadingHTTPServer):
        request_queue_size = 128

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Ignore the error: the test killed the client."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def completion(text: str, *, read: int = 5, said: int = 3, model: str = "m") -> dict[str, Any]:
    """Return a chat completion with these prompt and completion tokens."""
    message = {"role": "assistant", "content": text}
    return {
        "id": "1", "object": "chat.completion", "created": 1, "model": model,
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": {"prompt_tokens": read, "completion_tokens": said, "total_tokens": read + said},
    }  # fmt: skip


@contextmanager
def answering(
    script: Callable[[list[dict[str, str]]], str],
    tokens: Callable[[str, str], tuple[int, int]] = lambda *_: (5, 3),
) -> Iterator[str]:
    """Serve the model `m`, which answers by its messages and reports `tokens`; yield the URL."""

    def reply(path: str, data: bytes, send: Send) -> None:
        if not data:
            send(MODELS)
            return
        body = json.loads(data)
        text = script(body["messages"])
        shown = "".join(message["content"] for message in body["messages"])
        read, said = tokens(shown, text)
        send(completion(text, read=read, said=said, model=body["model"]))

    with listening(reply) as url:
        yield url


# a critic: a program that compares two final numbers


_FINAL = re.compile(r"#### *(-?\d+)")
_PART = r"\[{name}\]\n<(text-\w+)>\n(.*?)\n</\1>"
_FIELD = re.compile(r'"(verdict_mark)": "(VERDICT-\w+)"')


def verdict(question: str) -> str:
    """Return the reply to a question about a math answer: an object if the question wants one."""
    said, known = (_final(question, name) for name in ("Answer", "Reference"))
    rating = 1 if said is not None and said == known else -1
    told = f"The answer ends in {said}, the reference in {known}. {rating}"
    marked = _FIELD.search(question)
    if marked is None:
        return f'{told}\n{{"Logical Correctness": {rating}}}'
    return json.dumps(
        {marked[1]: marked[2], "Logical Correctness": {"comment": told, "rating": rating}}
    )


def _final(question: str, name: str) -> str | None:
    part = re.search(_PART.format(name=name), question, re.DOTALL)
    found = _FINAL.findall(part[2]) if part else []
    return found[-1] if found else None


@contextmanager
def serving_critic() -> Iterator[str]:
    """Serve the critic; yield its URL."""
    with answering(lambda messages: verdict(messages[-1]["content"])) as url:
        yield url


# batch files


Answer = Callable[[dict[str, Any]], str]
Outcome = Callable[[int, dict[str, Any]], int | None]
"""Map the number of a file and the body of a line to a status; None: the line expires."""


def _completed(body: dict[str, Any], text: str) -> dict[str, Any]:
    """Return a chat completion; a token is three letters."""
    read = sum(len(message["content"]) for message in body["messages"]) // 3
    return completion(text, read=read, said=len(text) // 3, model=body["model"])


class BatchServer:
    """Records the requests of a client, and serves batches.

    Batches end once `released` is set. `polled` is set at the first poll of a batch.
    `takes_batches`: whether the server supports batch files. `loses_replies`: how many batches
    start without their reply reaching the client. `ends`: final status of a batch in which a line
    expired.
    """

    def __init__(self, answer: Answer, outcome: Outcome = lambda *_: 200) -> None:
        self.url = ""
        self.released = threading.Event()
        self.released.set()
        self.polled = threading.Event()
        self.takes_batches = True
        self.loses_replies = 0
        self.fails: str | None = None
        self.outcome = outcome
        self.direct: list[dict[str, Any]] = []
        self.files: dict[str, list[dict[str, Any]]] = {}
        self.batches: list[dict[str, Any]] = []
        self.on_batch: Callable[[], None] = lambda: None
        self._answer = answer
        self._mutex = threading.Lock()

    def get(self, path: str) -> tuple[int, Any]:
        """Return status and reply; the server sends bytes unchanged."""
        if path.startswith("models"):
            return 200, MODELS
        if not self.takes_batches:
            return 404, {"error": {"message": "no such path"}}
        if found := re.fullmatch(r"batches/(\w+)", path):
            return self._state(found[1])
        if found := re.fullmatch(r"files/(\w+)-(output|error)/content", path):
            return 200, self._output(found[1], found[2])
        listed = list(reversed(self.batches))
        after = re.search(r"after=(\w+)", path)
        if after:
            names = [batch["id"] for batch in listed]
            listed = listed[names.index(after[1]) + 1 :]
        return 200, {"object": "list", "data": listed[:2], "has_more": len(listed) > 2}

    def post(self, path: str, data: bytes) -> tuple[int, Any]:
        """Return status and reply."""
        if path == "chat/completions":
            body = json.loads(data)
            with self._mutex:
                self.direct.append(body)
            return 200, _completed(body, self._answer(body))
        with self._mutex:
            return self._upload(data) if path == "files" else self._begin(json.loads(data))

    def _upload(self, data: bytes) -> tuple[int, Any]:
        assert b'name="purpose"\r\n\r\nbatch\r\n' in data
        lines = [line for line in data.split(b"\n") if line.startswith(b'{"custom_id"')]
        name = f"file{len(self.files)}"
        self.files[name] = [json.loads(line) for line in lines]
        return 200, {"id": name, "object": "file"}

    def _begin(self, asked: dict[str, Any]) -> tuple[int, Any]:
        assert asked["endpoint"] == "/v1/chat/completions"
        assert asked["completion_window"] == "24h"
        batch = {"id": f"batch{len(self.batches)}", "input_file_id": asked["input_file_id"]}
        self.batches.append(batch)
        self.on_batch()
        if self.loses_replies:
            self.loses_replies -= 1
            return 502, {"error": {"message": "bad gateway"}}
        return 200, batch

    def _state(self, name: str) -> tuple[int, Any]:
        batch = next((b for b in self.batches if b["id"] == name), None)
        if batch is None:
            return 404, {"error": {"message": "no such batch"}}
        if not self.released.is_set():
            self.polled.set()
            return 200, {**batch, "status": "in_progress"}
        if self.fails is not None:
            return 200, {**batch, "status": "failed", "errors": {"data": [{"message": self.fails}]}}
        status = "expired" if None in self._statuses(name) else "completed"
        outputs = {"output_file_id": f"{name}-output", "error_file_id": f"{name}-error"}
        return 200, {**batch, "status": status, **outputs}

    def _lines(self, name: str) -> list[dict[str, Any]]:
        return self.files[next(b["input_file_id"] for b in self.batches if b["id"] == name)]

    def _statuses(self, name: str) -> list[int | None]:
        number = int(name.removeprefix("batch"))
        return [self.outcome(number, line["body"]) for line in self._lines(name)]

    def _output(self, name: str, kind: str) -> bytes:
        """Return one of a batch's output files, its lines in another order."""
        lines = list[str]()
        for line, status in zip(self._lines(name), self._statuses(name), strict=True):
            if (status == 200) is not (kind == "output"):
                continue
            told: dict[str, Any] = {"custom_id": line["custom_id"]}
            if status is None:
                told |= {"response": None, "error": {"code": "batch_expired"}}
            elif status == 200:
                reply = _completed(line["body"], self._answer(line["body"]))
                told |= {"response": {"status_code": 200, "body": reply}, "error": None}
            else:
                reply = {"error": {"message": "no", "code": None}}
                told |= {"response": {"status_code": status, "body": reply}, "error": None}
            lines.append(json.dumps(told))
        return "\n".join(reversed(lines)).encode()


@contextmanager
def batching(answer: Answer, outcome: Outcome = lambda *_: 200) -> Iterator[BatchServer]:
    """Serve the model `m`."""
    server = BatchServer(answer, outcome)

    def reply(path: str, data: bytes, send: Send) -> None:
        status, value = server.post(path, data) if data else server.get(path)
        send(value, status)

    with listening(reply) as server.url:
        yield server


# a judge whose replies are counted as they are served, and runs that ask it


SUPPORT = Path(__file__).parent
LIMIT_S = 900
"""A run takes seconds; on a busy machine, its killer may wait for minutes."""
UNREADABLE = 50
"""The first reply to one question in so many is unreadable."""
GREEDY = Sampling(temperature=0.0, top_p=1.0, max_tokens=600)
CONCURRENCY = 8
IN_FLIGHT = 2 * CONCURRENCY + SLICE
"""Maximum of requests that an engine sends and has not saved: those in flight, and a slice."""
BASE = """
extends: tiny
policy: {engine: {kind: scripted, script: "scripts:policy"}}
reward: {model: none}
training: {min_pairs: 1000000}
assessment: {reference: null, reward: false, kl: false, oracle: null, probes: null}
"""


def review(request: Request, sampling: Sampling) -> str:
    """Find every prompt perfect."""
    return json.dumps(dict.fromkeys(ASPECTS, 1))


def critique(request: Request, sampling: Sampling) -> str:
    """Rate the requested aspects; every reply can be parsed."""
    readable = request.seed + (request.seed % 8 == 0)
    return scripts.critic(
        Request(request_id="", messages=request.messages, seed=readable), sampling
    )


SUMS = 500
"""Number of prompts; the reviewer rates all of them, as from a file."""
POOL = "annotators: [{name: one, model: strong, template: tiny, form: token, max_tokens: 5}]\n"
ENGINE = f"engine: {{kind: openai, concurrency: {CONCURRENCY}, model_name: m}}"
KINDS: dict[str, tuple[Callable[[Request, Sampling], str], str]] = {
    "critiques": (
        critique,
        """
critic: {{model: "{url}", ENGINE}}
prompts: {{per_iteration: 20, max_test: 4, dev_share: 0, chunk: 4}}
recipe: {{name: rlrf, n: 10, m: 0}}
""",
    ),
    "comparisons": (
        judges.greater,
        """
critic: {{kind: verifier}}
prompts: {{per_iteration: 400, max_test: 4, dev_share: 0, chunk: 40}}
annotation:
  pool: {pool}
  flip_probability: 0
  strong: {{model: "{url}", ENGINE}}
recipe: {{name: dpo, n: 2}}
""",
    ),
    "grades": (
        judges.by_figure,
        """
critic: {{kind: verifier}}
prompts: {{per_iteration: 50, max_test: 4, dev_share: 0, chunk: 10}}
grading: {{model: "{url}", ENGINE}}
completion: {{pool: policy}}
recipe: {{name: ultrafeedback-dpo, n: 4}}
""",
    ),
    "reviews": (
        review,
        """
critic: {{kind: verifier}}
prompts:
  source: "{sums}"
  parts: null
  per_iteration: 40
  max_test: 4
  dev_share: 0
  chunk: 40
  quality: {{judge: model, model: "{url}", ENGINE}}
recipe: {{name: rlrf, n: 1, m: 0}}
""",
    ),
}


class PaidJudge:
    """Answers with a function of the messages, counts served replies, and may end its client."""

    def __init__(self, answer: Callable[[Request, Sampling], str]) -> None:
        self.served = 0
        self.url = ""
        self._answer = answer
        self._asked = Counter[str]()
        self._mutex = threading.Lock()
        self._deaths = 0
        self._fatal: tuple[int, Callable[[], bool]] | None = None

    def end_client_at(self, served: int, end: Callable[[], bool]) -> None:
        """Call `end` after so many served replies; the server answers nobody meanwhile.

        `end` returns whether the client is dead; the server then drops the client's pending
        requests.
        """
        self._fatal = (served, end)

    def serve(self, messages: list[dict[str, str]], say: Callable[[str], None]) -> bool:
        """Reply to a conversation, and count it; return whether the client is alive."""
        deaths = self._deaths
        with self._mutex:
            if deaths != self._deaths:
                return False
            say(self._reply(messages))
            self.served += 1
            if self._fatal is not None and self.served >= self._fatal[0]:
                end, self._fatal = self._fatal[1], None
                self._deaths += end()
        return True

    def _reply(self, messages: list[dict[str, str]]) -> str:
        """Return the reply to a conversation; the first one may be unreadable."""
        text = json.dumps(messages)
        attempt = self._asked[text]
        self._asked[text] += 1
        number = int(hashlib.sha256(text.encode()).hexdigest()[:8], 16)
        if attempt == 0 and number % UNREADABLE == 0:
            return "That is hard to say."
        shown = tuple(Message(role=m["role"], content=m["content"]) for m in messages)
        return self._answer(Request(request_id="", messages=shown, seed=number + attempt), GREEDY)


@contextmanager
def paid_judge(answer: Callable[[Request, Sampling], str]) -> Iterator[PaidJudge]:
    """Serve a judge as the model `m`."""
    judge = PaidJudge(answer)

    def reply(path: str, data: bytes, send: Send) -> None:
        if data:
            judge.serve(json.loads(data)["messages"], lambda text: send(completion(text)))
        else:
            send(MODELS)

    with listening(reply) as judge.url:
        yield judge


def tell(run: Path, number: int, judge: PaidJudge) -> bool:
    """Send a signal to the process that works on a run, and wait for its effect.

    Return whether the process is dead. Answers served earlier are durable by then, except those in
    flight.
    """
    wait_until(lambda: judge.served - spent(run).judge_calls <= IN_FLIGHT)
    reader = Reader(run)
    pid = reader.events("start")[-1]["pid"]
    reader.close()
    os.kill(pid, number)
    kills = number == signal.SIGKILL
    wait_until(lambda: ended(pid) if kills else _stops(run))
    return kills


def _stops(run: Path) -> bool:
    try:
        return ask(run, Command(op="look")).stopping
    except ControlError as error:
        return isinstance(error, NoDaemonError)


def spent(run: Path) -> Cost:
    """Return the spending in a run's journal."""
    reader = Reader(run)
    try:
        return reader.total_cost()
    finally:
        reader.close()


def paid_config(folder: Path, kind: str, url: str) -> str:
    """Return the configuration of a run that pays the judge at `url`; write its input files."""
    pool, sums = folder / "pool.yaml", folder / "sums.jsonl"
    pool.write_text(POOL)
    sums.write_text("".join(f"{json.dumps(row)}\n" for row in map(_sum, range(SUMS))))
    text = KINDS[kind][1].replace("ENGINE", ENGINE.replace("{", "{{").replace("}", "}}"))
    return BASE + text.format(url=url, pool=pool, sums=sums)


def _sum(number: int) -> dict[str, str]:
    reference = str(number + 1)
    return {"task": "math", "prompt": f"What is {number} + 1?", "reference": reference}


class PaidRun:
    """A run with a paid judge: started, ended by a signal at a number of replies, resumed."""

    def __init__(self, folder: Path, kind: str, judge: PaidJudge, *, limits: str = "") -> None:
        self.lake = folder / "lake"
        self.run = self.lake / "runs" / "a"
        self.judge = judge
        self._config = folder / "paid.yaml"
        self._config.write_text(paid_config(folder, kind, judge.url) + limits)

    def go(self, *, signal_number: int | None = None, at: int = 0) -> int:
        """Run to the end, or to a signal after so many replies; return the exit code."""
        process = subprocess.Popen(
            [sys.executable, "-m", "lpfloop", "run", "--config", str(self._config), "--run", "a"],
            env={**os.environ, "PYTHONPATH": _path(), "LPFLOOP_LAKE": str(self.lake)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        if signal_number is not None:
            self.judge.end_client_at(at, lambda: tell(self.run, signal_number, self.judge))
        _, self.stderr = process.communicate(timeout=LIMIT_S)
        return process.returncode


def _path() -> str:
    return os.pathsep.join(filter(None, (str(SUPPORT), os.environ.get("PYTHONPATH"))))


SIGNALS = {"SIGTERM": signal.SIGTERM, "SIGKILL": signal.SIGKILL}
