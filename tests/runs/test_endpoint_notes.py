"""A run's notes on the endpoints that served it: their identity and their oddities."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import scripts
from typer.testing import CliRunner
from world import RUN, loop, small_config, stand_ins, write_prompts

from lpfloop.configs.schema import ConfigError
from lpfloop.loop.cli.app import app
from lpfloop.loop.run.stop import NothingToTrainOn
from lpfloop.policies.engines.engine import Request, Sampling
from lpfloop.stores.frames import frame_rows
from lpfloop.stores.journal_reader import Reader
from lpfloop.stores.lake import RunReader, run_folder
from lpfloop.stores.records import Critique, Message

GREEDY = Sampling(temperature=0.0, top_p=1.0, max_tokens=96)


class Judge:
    """A judge over HTTP; `change` alters each reply, given the number of earlier ones."""

    def __init__(self) -> None:
        self.served = 0
        self.bodies: list[dict[str, Any]] = []
        self.change: Callable[[dict[str, Any], int], None] = lambda reply, number: None
        judge = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._say({"object": "list", "data": [{"id": "judge-1"}]})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                judge.bodies.append(body)
                shown = tuple(Message(**message) for message in body["messages"])
                asked = Request(request_id="", messages=shown, seed=body["seed"])
                message = {"role": "assistant", "content": scripts.critic(asked, GREEDY)}
                usage = {"prompt_tokens": 70, "completion_tokens": 10, "total_tokens": 80}
                reply = {
                    "object": "chat.completion",
                    "model": "judge-1-october",
                    "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
                    "usage": usage,
                }
                judge.change(reply, judge.served)
                judge.served += 1
                self._say(reply)

            def _say(self, value: Any, status: int = 200) -> None:
                data = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        serve = self._server.serve_forever
        self._thread = threading.Thread(target=serve, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def judge() -> Iterator[Judge]:
    server = Judge()
    yield server
    server.close()


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Path]:
    with stand_ins(tmp_path):
        yield tmp_path


def turn(lake: Path, judge: Judge, *overrides: str) -> None:
    """Run a loop whose critic is the judge over HTTP."""
    own = ("critic.engine.kind=openai", f"critic.model={judge.url}", "iterations=1", *overrides)
    loop(lake, config=small_config(write_prompts(lake), *own))


def told(lake: Path) -> dict[str, Any]:
    shown = CliRunner().invoke(app, ["status", RUN, "--lake", str(lake), "--json"])
    assert shown.exit_code == 0, shown.stderr
    return json.loads(shown.stdout)


def test_units_keep_who_answered(lake, judge):
    turn(lake, judge)
    with closing(Reader(run_folder(lake, RUN))) as reader:
        served = reader.serving_reports()
    said = {"asked": "judge-1", "model": "judge-1-october", "system_fingerprint": ""}
    assert served
    assert all(serving.report == said for serving in served)
    assert told(lake)["warnings"] == []
    assert judge.bodies
    assert not any("logprobs" in body for body in judge.bodies)


def test_judge_becomes_another_model(lake, judge):
    def change(reply: dict[str, Any], number: int) -> None:
        reply["system_fingerprint"] = "fp_1" if number < 9 else "fp_2"

    judge.change = change
    turn(lake, judge)
    [first, *_] = told(lake)["warnings"]
    assert all(name in first for name in ("judge-1-october (fp_1)", "judge-1-october (fp_2)"))
    shown = CliRunner().invoke(app, ["status", RUN, "--lake", str(lake)])
    assert "warning: judge-1 changed" in shown.stdout


def test_judge_without_usage(lake, judge):
    def change(reply: dict[str, Any], number: int) -> None:
        del reply["usage"]
        reply["choices"][0].update(finish_reason="splendid")

    judge.change = change
    turn(lake, judge)
    assert any("'splendid'" in warning for warning in told(lake)["warnings"])
    assert any("no usage" in warning for warning in told(lake)["warnings"])
    with closing(Reader(run_folder(lake, RUN))) as reader:
        events = [e for e in reader.events("remark") if "usage" in str(e)]
        asked = [s for s in reader.stages() if s.totals.get("judge_calls")]
    places = sorted((event["iteration"], event["stage"]) for event in events)
    assert places == sorted((s.iteration, s.stage) for s in asked)
    assert all(s.totals["prompt_tokens"] > s.totals["calls"] > 0 for s in asked)


def test_judge_without_a_price(lake, judge):
    with pytest.raises(ConfigError, match="the model judge-1 lacks a price"):
        turn(lake, judge, "budget.money=5")
    assert judge.served == 0
    assert not run_folder(lake, RUN).exists()
    turn(lake, judge, "budget.money=5", "prices.models={judge-1: {prompt: 1, completion: 2}}")
    assert told(lake)["spend"]["money"]["used"] == pytest.approx(judge.served * 90e-6)


def test_failed_requests_not_retried(lake, judge):
    def change(reply: dict[str, Any], number: int) -> None:
        if number % 9 == 8:
            reply["choices"][0].update(finish_reason="content_filter", message=None)

    judge.change = change
    with suppress(NothingToTrainOn):
        turn(lake, judge, "critic.attempts=3", "recipe.m=0")
    with closing(RunReader(run_folder(lake, RUN))) as reader:
        critiques = frame_rows(Critique, reader.scan("critiques").collect())
    failed = [row for row in critiques if row.status == "failed"]
    assert failed
    assert {row.attempts for row in failed} == {1}
    assert any("content_filter" in warning for warning in told(lake)["warnings"])
