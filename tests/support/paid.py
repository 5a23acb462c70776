"""A judge behind HTTP whose replies are counted as they are served, and runs that ask it."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import graders
import judges
import scripts
from waiting import ended, wait_until

from lpfloop.critics.quality.prompt_review import ASPECTS
from lpfloop.loop.daemon.control import ControlError, Look, NoDaemonError, ask
from lpfloop.loop.run.pump import SLICE
from lpfloop.policies.engines.engine import Request, Sampling
from lpfloop.stores.journal_reader import Cost, Reader
from lpfloop.stores.records import Message

SUPPORT = Path(__file__).parent
LIMIT_S = 900
"""A run takes seconds; on a busy machine, who ends it may wait for minutes until it is so far."""
UNREADABLE = 50
"""One question in so many is at first answered in a way that cannot be read."""
COMPLETION = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
GREEDY = Sampling(temperature=0.0, top_p=1.0, max_tokens=600)
CONCURRENCY = 8
IN_FLIGHT = 2 * CONCURRENCY + SLICE
"""Requests that an engine holds at most: what it has at hand, and the slice that goes beyond."""
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
    """Rate what is asked for; always readable."""
    readable = request.seed + (request.seed % 8 == 0)
    return scripts.critic(
        Request(request_id="", messages=request.messages, seed=readable), sampling
    )


SUMS = 500
"""Prompts that are all reviewed, as those that are read from a file are."""
POOL = "annotators: [{name: one, model: strong, template: tiny, form: token, max_tokens: 5}]\n"
ENGINE = f"engine: {{kind: openai, concurrency: {CONCURRENCY}, model_name: m}}"
KINDS: dict[str, tuple[Callable[[Request, Sampling], str], str]] = {
    "critiques": (
        critique,
        """
critic: {{model: "{url}", ENGINE}}
prompts: {{per_iteration: 40, evaluated: 4, dev_share: 0, chunk: 4}}
recipe: {{name: rlrf, n: 10, m: 0}}
""",
    ),
    "comparisons": (
        judges.greater,
        """
critic: {{kind: verifier}}
prompts: {{per_iteration: 400, evaluated: 4, dev_share: 0, chunk: 40}}
annotation:
  pool: {pool}
  flip_probability: 0
  strong: {{model: "{url}", ENGINE}}
recipe: {{name: dpo, n: 2}}
""",
    ),
    "grades": (
        graders.by_figure,
        """
critic: {{kind: verifier}}
prompts: {{per_iteration: 100, evaluated: 4, dev_share: 0, chunk: 10}}
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
  evaluated: 4
  dev_share: 0
  chunk: 40
  quality: {{judge: model, model: "{url}", ENGINE}}
recipe: {{name: rlrf, n: 1, m: 0}}
""",
    ),
}


class PaidJudge:
    """Answers by a function of the messages, counts what it served, and may end its client."""

    def __init__(self, answer: Callable[[Request, Sampling], str]) -> None:
        self.served = 0
        self.url = ""
        self._answer = answer
        self._asked = Counter[str]()
        self._mutex = threading.Lock()
        self._deaths = 0
        self._fatal: tuple[int, Callable[[], bool]] | None = None

    def end_client_at(self, served: int, end: Callable[[], bool]) -> None:
        """Call `end` as soon as so many replies were served; nobody is served meanwhile.

        It says whether the client is dead: what that has asked is not answered any more.
        """
        self._fatal = (served, end)

    def serve(self, messages: list[dict[str, str]], say: Callable[[str], None]) -> bool:
        """Say the reply to a conversation, and count it; return whether anybody is there."""
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

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self._say({"object": "list", "data": [{"id": "m"}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if not judge.serve(body["messages"], self._complete):
                self.close_connection = True

        def _complete(self, text: str) -> None:
            message = {"role": "assistant", "content": text}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            rest = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
            self._say({**rest, "choices": [choice], "usage": COMPLETION})

        def _say(self, value: Any) -> None:
            data = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that was killed is no error of the server."""

    server = Server(("127.0.0.1", 0), Handler)
    judge.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield judge
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def tell(run: Path, number: int, judge: PaidJudge) -> bool:
    """Send who works on a run a signal, and wait until it is heard; return whether it is dead.

    What was served before is durable by then, but for what is in flight.
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
        return ask(run, Look()).stopping
    except ControlError as error:
        return isinstance(error, NoDaemonError)


def spent(run: Path) -> Cost:
    """Return what the journal of a run says was spent."""
    reader = Reader(run)
    try:
        return reader.spent()
    finally:
        reader.close()


def paid_config(folder: Path, kind: str, url: str) -> str:
    """Return the configuration of a run that pays the judge at `url`; write what it reads."""
    pool, sums = folder / "pool.yaml", folder / "sums.jsonl"
    pool.write_text(POOL)
    sums.write_text("".join(f"{json.dumps(row)}\n" for row in map(_sum, range(SUMS))))
    text = KINDS[kind][1].replace("ENGINE", ENGINE.replace("{", "{{").replace("}", "}}"))
    return BASE + text.format(url=url, pool=pool, sums=sums)


def _sum(number: int) -> dict[str, str]:
    reference = str(number + 1)
    return {"task": "math", "prompt": f"What is {number} + 1?", "reference": reference}


class PaidRun:
    """A run whose judge is paid: started, ended by a signal at a number of replies, resumed."""

    def __init__(self, folder: Path, kind: str, judge: PaidJudge, *, limits: str = "") -> None:
        self.lake = folder / "lake"
        self.run = self.lake / "runs" / "a"
        self.judge = judge
        self._config = folder / "paid.yaml"
        self._config.write_text(paid_config(folder, kind, judge.url) + limits)

    def go(self, *, signal_number: int | None = None, at: int = 0) -> int:
        """Run to the end, or to a signal once so many replies were served; return the exit code."""
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
