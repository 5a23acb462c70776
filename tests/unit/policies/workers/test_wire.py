"""Frames between a process and its workers carry every value; a worker's environment is its own."""

from hypothesis import given, settings
from hypothesis import strategies as st

from lpfloop.policies.engines.engine import (
    AnswerLogprob,
    Batch,
    BatchResult,
    Completion,
    MeasureResult,
    Request,
    Sampling,
    ScoreBatch,
    ScoreRequest,
    ScoreResult,
)
from lpfloop.policies.workers import wire
from lpfloop.policies.workers.worker import worker_environment
from lpfloop.stores.records import Message


def test_a_users_thread_settings_win(environ) -> None:
    environ["OMP_WAIT_POLICY"] = "ACTIVE"
    assert worker_environment(3)["OMP_WAIT_POLICY"] == "ACTIVE"
    assert worker_environment(3)["VLLM_CPU_KVCACHE_SPACE"] == "3"


MESSAGES = st.lists(st.builds(Message, role=st.text(), content=st.text()), max_size=3).map(tuple)
SEEDS = st.integers(0, 2**53 - 1)
SAMPLINGS = st.sampled_from(
    [
        Sampling(temperature=0.7, top_p=0.9, max_tokens=9, token_ids=True),
        Sampling(temperature=0, top_p=1, max_tokens=1, logit_bias=((3, -100.0), ("é", 0.1))),
    ]
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
REQUESTS = st.lists(st.builds(Request, request_id=st.text(), messages=MESSAGES, seed=SEEDS))


@settings(max_examples=15)
@given(
    st.builds(Batch, key=st.text(), requests=REQUESTS.map(tuple), sampling=SAMPLINGS),
    st.builds(BatchResult, key=st.text(), completions=st.lists(COMPLETIONS).map(tuple)),
    st.integers(1, 50),
)
def test_frames_in_any_pieces(sent: Batch, result: BatchResult, piece: int) -> None:
    asked = (ScoreRequest(request_id=r.request_id, messages=r.messages) for r in sent.requests)
    scored = ScoreBatch(key=sent.key, requests=tuple(asked))
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
