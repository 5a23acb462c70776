"""Batch files: sent once, answered like direct requests, and found again after a restart."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clock import batches
from http_server import BatchServer, batching

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.endpoint.batch_file_engine import BatchFileEngine
from lpfloop.policies.endpoint.openai_engine import OpenAIEngine
from lpfloop.policies.engines.engine import BatchResult, Completion, Engine, EngineError

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
        results = {r.key: r.answers for r in engine.generate(iter(batches(count)))}
    finally:
        engine.close()
    return [c for batch in batches(count) for c in results[batch.key]]


def number(body: dict[str, Any]) -> int:
    return int(body["messages"][-1]["content"].removeprefix("n"))


def lines(server: BatchServer) -> list[list[int]]:
    return [[number(line["body"]) for line in file] for file in server.files.values()]


def abandoned(server: BatchServer, folder: Path) -> BaseException:
    """Close an engine while its batch runs; return its error."""
    server.released.clear()
    engine = opened(server, folder)
    errors = list[BaseException]()

    def ask() -> None:
        try:
            list(engine.generate(iter(batches(COUNT))))
        except EngineError as error:
            errors.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    # The engine polls the batch once it has recorded it.
    server.polled.wait()
    engine.close()
    thread.join()
    server.released.set()
    return errors[0]


def test_same_as_direct(server, tmp_path):
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


def test_left_batch_is_waited_for(server, tmp_path, caplog):
    error = abandoned(server, tmp_path)
    assert "closed" in str(error)
    assert f"batch batch0 continues at {server.url}, with 99 requests" in caplog.text
    found = drawn(opened(server, tmp_path))
    assert [c.text for c in found] == [f"n{i} by {i}" for i in range(COUNT)]
    assert (len(server.files), len(server.batches)) == (1, 1)


def test_answered_records_are_forgotten(server, tmp_path):
    """lpfloop keeps a record while a run may request its answers again, and removes it later."""
    engine = opened(server, tmp_path, batch_poll_s=0.5)
    assert len(list(engine.generate(iter(batches(COUNT))))) == len(batches(COUNT))
    kept = {path.name for path in tmp_path.iterdir()}
    assert kept
    time.sleep(0.5)
    assert len(list(engine.generate(iter(batches(1))))) == 1
    assert kept.isdisjoint(path.name for path in tmp_path.iterdir())
    engine.close()


def test_records_of_open_batches_are_kept(server, tmp_path):
    """Another thread of the run does not remove the record of a file that is still needed."""
    answered, released = threading.Event(), threading.Event()

    def outcome(file: int, _: dict[str, Any]) -> int:
        if file == 1:
            answered.set()
            released.wait()
        return 200

    server.outcome = outcome
    engine = opened(server, tmp_path, batch_most=10)
    [batch, *_] = batches(15)
    found = list[BatchResult]()
    thread = threading.Thread(target=lambda: found.extend(engine.generate([batch])), daemon=True)
    thread.start()
    answered.wait()
    try:
        kept = {path.name for path in tmp_path.iterdir()}
        time.sleep(0.1)  # longer than batch_poll_s
        others = batches(COUNT)[-2:]
        assert len(list(engine.generate(iter(others)))) == len(others)
        assert kept <= {path.name for path in tmp_path.iterdir()}
    finally:
        released.set()
        thread.join()
        engine.close()
    assert [len(result.answers) for result in found] == [len(batch.requests)]


def test_unheard_batch_is_found(server, tmp_path):
    server.loses_replies = 1
    drawn(opened(server, tmp_path, batch_most=10))
    names = [batch["input_file_id"] for batch in server.batches]
    assert sorted(names) == sorted(server.files)


def test_expired_lines(server, tmp_path):
    server.outcome = lambda file, body: None if file == 0 and number(body) % 3 == 0 else 200
    found = drawn(opened(server, tmp_path))
    assert [c.text for c in found] == [f"n{i} by {i}" for i in range(COUNT)]
    assert lines(server)[1] == list(range(3, COUNT, 3))


def test_refused_line(server, tmp_path):
    server.outcome = lambda _, body: 400 if number(body) == 7 else 200
    found = drawn(opened(server, tmp_path))
    assert [number(body) for body in server.direct] == [0, 7]
    assert found[7].text == "n7 by 7"
    assert len(server.batches) == 1


def test_failed_batch(server, tmp_path):
    server.fails = "Enqueued token limit reached"
    with pytest.raises(EngineError, match="Enqueued token limit reached"):
        drawn(opened(server, tmp_path))
    server.fails = None
    assert len(drawn(opened(server, tmp_path))) == COUNT
    assert len(server.batches) == 2


def test_no_batch_files(server, tmp_path):
    server.takes_batches = False
    with pytest.raises(EngineError, match="batch"):
        drawn(opened(server, tmp_path))
    assert server.direct == []
