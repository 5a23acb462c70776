"""What a run keeps of the endpoints that served it: who they say they are, what was odd."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import scripts
from crashing import RUN, loop, small_config, stand_ins, write_prompts
from typer.testing import CliRunner

from lpfloop.configs.schema import ConfigError
from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.run.budget import BudgetReachedError
from lpfloop.policies.engines.engine import Request, Sampling
from lpfloop.stores.journal_reader import Reader
from lpfloop.stores.lake import run_folder
from lpfloop.stores.records import Message

GREEDY = Sampling(temperature=0.0, top_p=1.0, max_tokens=96)


class Judge:
    """A judge over HTTP; `change` alters each reply, given how many came before."""

    def __init__(self) -> None:
        self.served = 0
        self.refuses: tuple[str, ...] = ()
        self.bodies: list[dict[str, Any]] = []
        self.change: Callable[[dict[str, Any], int], None] = lambda reply, number: None
        judge = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._say({"object": "list", "data": [{"id": "judge-1"}]})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                judge.bodies.append(body)
                if refused := next((name for name in judge.refuses if name in body), None):
                    error = {"message": f"Unsupported parameter: '{refused}'", "param": refused}
                    self._say({"error": error}, status=400)
                    return
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
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
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
    """Turn a loop whose critic is the judge over HTTP."""
    own = ("critic.engine.kind=openai", f"critic.model={judge.url}", "iterations=1", *overrides)
    loop(lake, config=small_config(write_prompts(lake), *own))


def told(lake: Path) -> dict[str, Any]:
    shown = CliRunner().invoke(app, ["status", RUN, "--lake", str(lake), "--json"])
    assert shown.exit_code == 0, shown.stderr
    return json.loads(shown.stdout)


def test_units_keep_who_answered_and_status_is_silent_while_it_stays_the_same(lake, judge):
    turn(lake, judge)
    with closing(Reader(run_folder(lake, RUN))) as reader:
        served = reader.served()
    said = {"asked": "judge-1", "model": "judge-1-october", "system_fingerprint": ""}
    assert served
    assert all(serving.said == said for serving in served)
    assert told(lake)["warnings"] == []


def test_a_judge_is_not_asked_how_probable_its_words_are(lake, judge):
    """Nothing is stored of it, and it makes an answer many times as long."""
    turn(lake, judge)
    assert judge.bodies
    assert not any("logprobs" in body for body in judge.bodies)


def test_status_warns_of_a_judge_that_changes_within_a_run(lake, judge):
    def change(reply: dict[str, Any], number: int) -> None:
        reply["system_fingerprint"] = "fp_1" if number < 9 else "fp_2"

    judge.change = change
    turn(lake, judge)
    [first, *_] = told(lake)["warnings"]
    assert "judge-1 changed in critique" in first
    assert "judge-1-october (fp_1)" in first
    assert "judge-1-october (fp_2)" in first
    shown = CliRunner().invoke(app, ["status", RUN, "--lake", str(lake)])
    assert "warning: judge-1 changed" in shown.stdout


def test_a_judge_without_usage_is_counted_and_told_once_a_stage(lake, judge):
    judge.change = lambda reply, number: reply.pop("usage")
    turn(lake, judge)
    [warning] = told(lake)["warnings"]
    assert warning.startswith("judge-1: the endpoint reports no usage: its tokens are counted")
    with closing(Reader(run_folder(lake, RUN))) as reader:
        events = reader.events("remark")
        asked = [s for s in reader.stages() if s.totals.get("judge_calls")]
    places = sorted((event["iteration"], event["stage"]) for event in events)
    assert places == sorted((s.iteration, s.stage) for s in asked)
    assert all(s.totals["prompt_tokens"] > s.totals["calls"] > 0 for s in asked)


def test_a_judge_without_usage_does_not_evade_a_budget(lake, judge):
    turn(lake, judge)
    honest = told(lake)["spend"]["tokens"]["used"]
    judge.change = lambda reply, number: reply.pop("usage")
    limit = honest // 2
    other = lake / "other"
    other.mkdir()
    with pytest.raises(BudgetReachedError, match=r"budget\.tokens"):
        turn(other, judge, f"budget.tokens={limit}")
    assert 0 < told(other)["spend"]["tokens"]["used"] <= limit


def test_a_judge_that_claims_absurd_usage_does_not_end_a_run(lake, judge):
    def change(reply: dict[str, Any], number: int) -> None:
        reply["usage"] = {"prompt_tokens": 2**31 - 1, "completion_tokens": 2**31 - 1}

    judge.change = change
    turn(lake, judge, "budget.tokens=200000")
    assert told(lake)["spend"]["tokens"]["used"] <= 200_000
    assert "more tokens than a request can cost" in told(lake)["warnings"][0]


def test_an_unknown_finish_reason_is_told_with_its_word(lake, judge):
    judge.change = lambda reply, number: reply["choices"][0].update(finish_reason="splendid")
    turn(lake, judge)
    assert "finish_reason 'splendid' is not known" in told(lake)["warnings"][0]


def test_a_judge_without_a_price_is_refused_before_it_is_asked(lake, judge):
    with pytest.raises(ConfigError, match="the model judge-1 has no price"):
        turn(lake, judge, "budget.money=5")
    assert judge.served == 0
    assert not run_folder(lake, RUN).exists()
    turn(lake, judge, "budget.money=5", "prices.models={judge-1: {prompt: 1, completion: 2}}")
    assert told(lake)["spend"]["money"]["used"] == pytest.approx(judge.served * 90e-6)


def test_the_refusal_is_one_sentence_of_the_command(lake, judge):
    path = lake / "mine.yaml"
    path.write_text(f"extends: tiny\ncritic: {{model: '{judge.url}'}}\n")
    command = ["run", "--config", str(path), "--lake", str(lake / "l")]
    command += ["--set", "budget.money=5"]
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == Exit.BAD_INPUT
    assert "the model judge-1 has no price" in shown.stderr
    assert "prices.models={judge-1:" in shown.stderr


def test_a_judge_that_reasons_and_takes_no_temperature_judges_all(lake, judge):
    judge.refuses = ("temperature", "top_p")
    room = "critic.engine.reasoning_tokens=500"
    turn(lake, judge, room, "critic.engine.reasoning_effort=low", "critic.sampling.max_tokens=20")
    judged = [body for body in judge.bodies if not {"temperature", "top_p"} & set(body)]
    assert len(judged) == judge.served > 0
    assert all(body["reasoning_effort"] == "low" for body in judged)
    assert all(520 <= body["max_completion_tokens"] < 600 for body in judged)
    warnings = "\n".join(told(lake)["warnings"])
    assert "judge-1: the endpoint refuses temperature" in warnings
    assert "judge-1: the endpoint refuses top_p" in warnings


def test_room_to_reason_counts_as_what_a_request_may_cost(lake, judge):
    many = ("critic.engine.reasoning_tokens=1000000", "budget.tokens=500000")
    with pytest.raises(BudgetReachedError):
        turn(lake, judge, *many)
    assert judge.served == 0


def test_what_only_an_endpoint_takes_is_refused_for_a_model_that_runs_here(lake):
    config = small_config(write_prompts(lake), "critic.engine.reasoning_effort=low")
    with pytest.raises(ConfigError, match="are for endpoints"):
        loop(lake, config=config)
