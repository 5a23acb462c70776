"""Worker processes: streams that cannot deadlock, deaths that are told, no secrets, no orphans."""

import os
import signal
import textwrap
import time
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.engines.engine import (
    AnswerLogprob,
    Batch,
    BatchResult,
    Completion,
    EngineError,
    MeasureResult,
    Request,
    Sampling,
    ScoreBatch,
    ScoreRequest,
    ScoreResult,
)
from lpfloop.policies.engines.feed import Feed
from lpfloop.policies.workers import wire
from lpfloop.policies.workers.worker import child_workers, worker_environment
from lpfloop.policies.workers.worker_models import WorkerEngine
from lpfloop.stores.records import Message

pytestmark = pytest.mark.crash

SAMPLING = Sampling(temperature=1.0, top_p=1.0, max_tokens=10_000)


def batch(key: str, n: int = 4, text: str = "two words") -> Batch:
    messages = (Message(role="user", content=text),)
    requests = (Request(request_id=f"{key}/{i}", messages=messages, seed=i) for i in range(n))
    return Batch(key=key, requests=tuple(requests), sampling=SAMPLING)


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of modules that the workers of a test can import."""
    (tmp_path / "answers.py").write_text(
        textwrap.dedent("""
        import os, time
        from pathlib import Path

        HERE = Path(__file__).parent

        def slowly(request, sampling):
            time.sleep(0.2)
            return request.messages[-1].content

        def waiting(request, sampling):
            while request.request_id != "0/0" and not (HERE / "go on").exists():
                time.sleep(0.01)
            with (HERE / "begun").open("a") as begun:
                print(request.request_id, file=begun)
            return slowly(request, sampling)

        def never(request, sampling):
            time.sleep(3600)

        def dying(request, sampling):
            if request.request_id == "1/0":
                print("the last words")
                os._exit(7)
            return "well"

        def environment(request, sampling):
            return " ".join(sorted(os.environ))
        """)
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    return tmp_path


def open_worker(folder: Path, script: str | None = None) -> WorkerEngine:
    """Open a worker that is not started again, so that each death is told."""
    config = EngineConfig(kind="scripted", script=script, restarts=0)
    return WorkerEngine(
        "scripted", "none", config, start=child_workers(log=folder / "logs" / "worker.log")
    )


def test_a_worker_says_what_runs_it(tmp_path: Path) -> None:
    engine = open_worker(tmp_path)
    info = engine.ready()
    assert info.engine == "scripted"
    assert info.window > 0
    engine.close()


def test_more_text_than_pipes_hold_flows_past_a_slow_reader(tmp_path: Path) -> None:
    engine = open_worker(tmp_path)
    long = "word " * 4000
    drawn = engine.generate(batch(str(k), 64, long) for k in range(30))
    first = list(islice(drawn, 2))
    time.sleep(0.5)
    results = first + list(drawn)
    assert sorted(int(r.key) for r in results) == list(range(30))
    assert all(c.text.endswith(long) for r in results for c in r.completions)
    engine.close()


def test_a_stream_left_early_does_not_spoil_the_next(scripts: Path) -> None:
    engine = open_worker(scripts, "answers:waiting")
    left = engine.generate([batch(str(k), 1) for k in range(50)])
    next(left)
    left.close()
    (scripts / "go on").touch()  # all that the worker was sent could be answered now
    [result] = engine.generate([batch("next", 1, "another text")])
    assert [c.text for c in result.completions] == ["another text"]
    assert len((scripts / "begun").read_text().splitlines()) < 50
    engine.close()


def test_results_come_while_the_next_batch_is_not_there_yet(tmp_path: Path) -> None:
    """A feed of batches that arrive later does not hold back the results of the first."""
    engine = open_worker(tmp_path)
    feed: Feed[Batch] = Feed()
    feed.put(batch("early"))
    drawn = engine.generate(feed)
    assert next(drawn).key == "early"
    feed.put(batch("late"))
    feed.finish()
    assert [r.key for r in drawn] == ["late"]
    engine.close()


def test_a_worker_that_dies_is_told_with_its_last_words(scripts: Path) -> None:
    engine = open_worker(scripts, "answers:dying")
    drawn = engine.generate([batch("0"), batch("1")])
    with pytest.raises(EngineError) as caught:
        list(drawn)
    message = str(caught.value)
    assert "exit code 7" in message
    assert "the last words" in message
    assert "worker.log" in message
    engine.close()


def test_a_killed_worker_is_told_with_the_signal(scripts: Path) -> None:
    engine = open_worker(scripts, "answers:slowly")
    # More than are sent ahead: however late the kill is, there is work left.
    drawn = engine.generate(batch(str(k), 2) for k in range(10_000))
    next(drawn)
    os.kill(engine.pid, signal.SIGKILL)
    with pytest.raises(EngineError, match="killed by SIGKILL"):
        list(drawn)
    engine.close()


def test_what_can_not_be_loaded_is_told(tmp_path: Path) -> None:
    engine = open_worker(tmp_path, "no.such:function")
    with pytest.raises(EngineError, match=r"'no\.such:function' cannot be loaded"):
        engine.ready()
    engine.close()


def test_a_worker_has_a_session_of_its_own_and_ends_with_its_input(tmp_path: Path) -> None:
    engine = open_worker(tmp_path)
    engine.ready()
    assert os.getsid(engine.pid) == engine.pid
    engine.close()
    assert not Path(f"/proc/{engine.pid}").exists()


def test_an_order_that_cannot_be_carried_out_costs_no_process(tmp_path: Path) -> None:
    engine = open_worker(tmp_path)
    assert not engine.can_sleep()
    before = engine.pid
    for order in (engine.sleep, engine.wake, lambda: engine.reload(tmp_path)):
        with pytest.raises(EngineError, match=r"it cannot (sleep|wake|reload): scripted holds"):
            order()
    [result] = engine.generate([batch("0")])
    assert len(result.completions) == 4
    assert engine.pid == before
    engine.close()


def test_secrets_stay_with_the_parent(scripts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LPFLOOP_API_KEY", "OPENAI_API_KEY", "HF_TOKEN", "VLLM_API_KEY"):
        monkeypatch.setenv(name, "secret")
    engine = open_worker(scripts, "answers:environment")
    [result] = engine.generate([batch("0", 1)])
    names = result.completions[0].text.split()
    assert "PATH" in names
    assert not [name for name in names if "KEY" in name or name.endswith("TOKEN")]
    assert "secret" not in Path(f"/proc/{engine.pid}/cmdline").read_text()
    engine.close()


def test_a_users_thread_settings_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    assert worker_environment(3)["OMP_WAIT_POLICY"] == "ACTIVE"
    assert worker_environment(3)["VLLM_CPU_KVCACHE_SPACE"] == "3"


def test_two_batches_of_one_key_are_a_mistake(scripts: Path) -> None:
    engine = open_worker(scripts, "answers:never")  # the first is in flight when the second comes
    with pytest.raises(ValueError, match="have the key 0"):
        list(engine.generate([batch("0"), batch("0")]))
    engine.close()


MESSAGES = st.lists(st.builds(Message, role=st.text(), content=st.text()), max_size=3).map(tuple)
SEEDS = st.integers(0, 2**53 - 1)
SAMPLINGS = st.builds(
    Sampling,
    temperature=st.floats(0, 5),
    top_p=st.floats(0, 1),
    max_tokens=st.integers(1, 9),
    token_ids=st.booleans(),
    logit_bias=st.lists(
        st.tuples(st.integers(0, 9) | st.text(), st.floats(-100, 100)), max_size=3
    ).map(tuple),
)
COMPLETIONS = st.builds(
    Completion,
    request_id=st.text(),
    text=st.text(),
    prompt_tokens=st.integers(0, 9),
    completion_tokens=st.integers(0, 9),
    finish_reason=st.sampled_from(["stop", "length", "overlong", "failed"]),
    logprob=st.none() | st.floats(allow_nan=False),
    error=st.none() | st.text(),
)


@given(
    st.builds(
        Batch,
        key=st.text(),
        requests=st.lists(
            st.builds(Request, request_id=st.text(), messages=MESSAGES, seed=SEEDS)
        ).map(tuple),
        sampling=SAMPLINGS,
    ),
    st.builds(BatchResult, key=st.text(), completions=st.lists(COMPLETIONS).map(tuple)),
    st.integers(1, 50),
)
def test_frames_carry_every_value_in_any_pieces(
    sent: Batch, result: BatchResult, piece: int
) -> None:
    scored = ScoreBatch(
        key=sent.key,
        requests=tuple(
            ScoreRequest(request_id=r.request_id, messages=r.messages) for r in sent.requests
        ),
    )
    scores = ScoreResult(key="k", scores=(0.1, None, -1e300))
    measured = MeasureResult(key="k", logprobs=(None, AnswerLogprob(logprob=-0.1, tokens=3)))
    frames = [
        wire.batch_frame(sent),
        wire.result_frame(result),
        wire.score_batch_frame(scored),
        wire.score_result_frame(scores),
        wire.measure_result_frame(measured),
    ]
    data = b"".join(wire.encode(frame) for frame in frames)
    decoder = wire.Decoder()
    read = [
        frame
        for start in range(0, len(data), piece)
        for frame in decoder.feed(data[start : start + piece])
    ]
    assert wire.read_batch(read[0]) == sent
    assert wire.read_result(read[1]) == result
    assert wire.read_score_batch(read[2]) == scored
    assert wire.read_score_result(read[3]) == scores
    assert wire.read_measure_result(read[4]) == measured
