"""Batch files: asked once, answered as a direct request is, and found again after an end."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from batch_server import BatchServer, batching
from batches import batches
from waiting import wait_until

from lpfloop.configs.schema import ConfigError, EngineConfig
from lpfloop.loop.run.served import identified
from lpfloop.policies.endpoint.batch_file_engine import BatchFileEngine
from lpfloop.policies.endpoint.openai_engine import OpenAIEngine
from lpfloop.policies.engines.engine import Completion, Engine, EngineError

COUNT = 100


def echo(body: dict[str, Any]) -> str:
    return f"{body['messages'][-1]['content']} by {body['seed']}"


@pytest.fixture
def server() -> Iterator[BatchServer]:
    with batching(echo) as served:
        yield served


def opened(server: BatchServer, folder: Path, **settings: Any) -> BatchFileEngine:
    config = EngineConfig(**{"batch": True, "batch_least": 1, "batch_poll_s": 0.02, **settings})
    return BatchFileEngine(server.url, config, folder=folder)


def drawn(engine: Engine, count: int = COUNT) -> list[Completion]:
    """Return the completions in the order of their requests; close the engine."""
    try:
        results = {r.key: r.completions for r in engine.generate(iter(batches(count)))}
    finally:
        engine.close()
    return [c for batch in batches(count) for c in results[batch.key]]


def number(body: dict[str, Any]) -> int:
    return int(body["messages"][-1]["content"].removeprefix("n"))


def lines(server: BatchServer) -> list[list[int]]:
    return [[number(line["body"]) for line in file] for file in server.files.values()]


def abandoned(server: BatchServer, folder: Path) -> BaseException:
    """Close an engine while its batch runs; return what that ends with."""
    server.released.clear()
    engine = opened(server, folder)
    errors = list[BaseException]()

    def ask() -> None:
        try:
            list(engine.generate(iter(batches(COUNT))))
        except EngineError as error:
            errors.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    wait_until(lambda: any('"batch0"' in file.read_text() for file in folder.glob("[!.]*")))
    engine.close()
    thread.join()
    server.released.set()
    return errors[0]


def test_the_answers_are_those_of_direct_requests_and_say_that_they_are_batched(server, tmp_path):
    direct = drawn(OpenAIEngine(server.url, EngineConfig()))
    asked = {number(body): body for body in server.direct}
    server.direct.clear()
    found = drawn(opened(server, tmp_path, batch_most=60))
    assert [(c.request_id, c.text, c.prompt_tokens, c.completion_tokens) for c in found] == [
        (c.request_id, c.text, c.prompt_tokens, c.completion_tokens) for c in direct
    ]
    assert [number(body) for body in server.direct] == [0]
    assert [n for file in lines(server) for n in file] == list(range(1, COUNT))
    assert max(map(len, lines(server))) <= 60
    for file in server.files.values():
        for line in file:
            assert line["body"] == asked[number(line["body"])]
    told = [c.provenance.batched for c in found if c.provenance is not None]
    assert told == [False] + [True] * (COUNT - 1)


def test_too_few_requests_for_a_file_are_asked_directly(server, tmp_path):
    assert len(drawn(opened(server, tmp_path, batch_least=COUNT + 1))) == COUNT
    assert (len(server.direct), server.files) == (COUNT, {})


def test_a_batch_that_was_left_is_waited_for_again_and_not_sent_twice(server, tmp_path, caplog):
    error = abandoned(server, tmp_path)
    assert "closed" in str(error)
    assert f"batch batch0 goes on at {server.url}, with 99 requests" in caplog.text
    found = drawn(opened(server, tmp_path))
    assert [c.text for c in found] == [f"n{i} by {i}" for i in range(COUNT)]
    assert (len(server.files), len(server.batches)) == (1, 1)


def test_a_batch_whose_beginning_nobody_heard_of_is_found(server, tmp_path):
    server.loses_replies = 1
    drawn(opened(server, tmp_path, batch_most=10))
    names = [batch["input_file_id"] for batch in server.batches]
    assert sorted(names) == sorted(server.files)


def test_a_file_that_was_sent_before_its_batch_began_is_not_sent_again(server, tmp_path):
    abandoned(server, tmp_path)
    [record] = tmp_path.iterdir()
    record.write_text(record.read_text().replace('"batch0"', "null"))
    server.batches.clear()
    drawn(opened(server, tmp_path))
    assert (len(server.files), len(server.batches)) == (1, 1)


def test_an_endpoint_that_forgot_a_batch_is_asked_again(server, tmp_path, caplog):
    abandoned(server, tmp_path)
    server.batches[0]["id"] = "other"
    assert len(drawn(opened(server, tmp_path))) == COUNT
    assert "99 requests are sent again" in caplog.text


def test_lines_that_expire_are_sent_again_and_only_those(server, tmp_path):
    server.outcome = lambda file, body: None if file == 0 and number(body) % 3 == 0 else 200
    found = drawn(opened(server, tmp_path))
    assert [c.text for c in found] == [f"n{i} by {i}" for i in range(COUNT)]
    assert lines(server)[1] == list(range(3, COUNT, 3))


def test_batches_that_expire_whole_end_the_run_after_a_few(server, tmp_path):
    server.outcome = lambda *_: None
    with pytest.raises(EngineError, match="3 batch files ended without any answer"):
        drawn(opened(server, tmp_path))
    assert len(server.batches) == 3


def test_a_line_that_never_comes_fails_alone(server, tmp_path):
    late = {7: 3, 8: 2}
    server.outcome = lambda file, body: 500 if file < late.get(number(body), 0) else 200
    found = drawn(opened(server, tmp_path))
    failed = [c for c in found if c.finish_reason == "failed"]
    assert [(c.request_id, c.error) for c in failed] == [
        ("n7", "no answer in 3 batch files (HTTP 500: no)")
    ]
    assert lines(server)[1:] == [[7, 8], [7, 8]]


def test_a_refused_line_is_asked_directly(server, tmp_path):
    server.outcome = lambda _, body: 400 if number(body) == 7 else 200
    found = drawn(opened(server, tmp_path))
    assert [number(body) for body in server.direct] == [0, 7]
    assert found[7].text == "n7 by 7"
    assert len(server.batches) == 1


def test_a_batch_that_fails_as_a_whole_says_why_and_is_sent_anew_when_resumed(server, tmp_path):
    server.fails = "Enqueued token limit reached"
    with pytest.raises(EngineError, match=r"failed: Enqueued token limit reached; .*batch_most"):
        drawn(opened(server, tmp_path))
    server.fails = None
    assert len(drawn(opened(server, tmp_path))) == COUNT
    assert len(server.batches) == 2


def test_an_endpoint_without_batch_files_is_refused_before_anything_is_asked(server, tmp_path):
    server.takes_batches = False
    with pytest.raises(EngineError, match=r"takes no batch files \(HTTP 404.*engine.batch=false"):
        drawn(opened(server, tmp_path))
    assert server.direct == []


def test_several_endpoints_are_refused(server):
    config = EngineConfig(kind="openai", model_name="m", batch=True, base_urls=(server.url,) * 2)
    with pytest.raises(ConfigError, match=r"engine.batch=true: .* several base_urls: leave it out"):
        identified(server.url, config)


def test_models_that_run_here_are_refused():
    config = EngineConfig(kind="scripted", script="scripts:policy", batch=True)
    with pytest.raises(ConfigError, match=r"engine.batch=true: .* runs here: leave it out"):
        identified("tiny", config)
