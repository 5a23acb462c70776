"""The messages between a worker process and its parent: length-prefixed JSON frames over pipes.

A frame is four bytes of length, big-endian, and one JSON object. A conversation shared by many
requests travels once a batch, and so do the sampling settings.
"""

import base64
import json
import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from ...stores.records import Check, Message, Prompt
from ..engines.engine import (
    AnswerLogprob,
    Batch,
    BatchResult,
    Completion,
    EmbedResult,
    EngineError,
    MeasureResult,
    Request,
    Sampling,
    ScoreBatch,
    ScoreRequest,
    ScoreResult,
)

Frame = dict[str, Any]

_LENGTH = struct.Struct(">I")
_COMPLETION = tuple(field.name for field in fields(Completion))


def encode(frame: Frame) -> bytes:
    """Return the bytes of one frame."""
    text = json.dumps(frame, separators=(",", ":")).encode()
    return _LENGTH.pack(len(text)) + text


class Decoder:
    """Splits a stream of bytes into frames, however it is chunked."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Take the next bytes and yield the frames that are complete."""
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            frame: Frame = json.loads(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            yield frame


def batch_frame(batch: Batch) -> Frame:
    """Encode a batch."""
    places: dict[tuple[Message, ...], int] = {}
    requests = [
        [r.request_id, places.setdefault(r.messages, len(places)), r.seed] for r in batch.requests
    ]
    return {
        "key": batch.key,
        "sampling": asdict(batch.sampling),
        "conversations": _turns(places),
        "requests": requests,
    }


def read_batch(frame: Frame) -> Batch:
    """Decode a batch."""
    conversations = _conversations(frame)
    rows: list[tuple[str, int, int]] = frame["requests"]
    requests = tuple(
        Request(request_id=request_id, messages=conversations[place], seed=seed)
        for request_id, place, seed in rows
    )
    return Batch(key=frame["key"], requests=requests, sampling=_read_sampling(frame["sampling"]))


def _read_sampling(frame: Frame) -> Sampling:
    bias: list[tuple[int | str, float]] = frame["logit_bias"]
    return replace(
        Sampling(**frame),
        logit_bias=tuple((token, added) for token, added in bias),
        stop=tuple(frame["stop"]),
    )


def result_frame(result: BatchResult) -> Frame:
    """Encode the completions of a batch."""
    rows = [[getattr(c, name) for name in _COMPLETION] for c in result.completions]
    return {"key": result.key, "completions": rows}


def read_result(frame: Frame) -> BatchResult:
    """Decode the completions of a batch."""
    return BatchResult(key=frame["key"], completions=tuple(map(_completion, frame["completions"])))


def _completion(row: list[Any]) -> Completion:
    said: Frame = dict(zip(_COMPLETION, row, strict=True))
    tokens: list[int] | None = said["token_ids"]
    said["token_ids"] = None if tokens is None else tuple(tokens)
    return Completion(**said)


def score_batch_frame(batch: ScoreBatch) -> Frame:
    """Encode conversations to score."""
    places: dict[tuple[Message, ...], int] = {}
    requests = [[r.request_id, places.setdefault(r.messages, len(places))] for r in batch.requests]
    return {
        "key": batch.key,
        "conversations": _turns(places),
        "requests": requests,
        "ended": [r.ended for r in batch.requests],
    }


def read_score_batch(frame: Frame) -> ScoreBatch:
    """Decode conversations to score."""
    conversations = _conversations(frame)
    rows: list[tuple[str, int]] = frame["requests"]
    prompts = [_prompt(fields) for fields in frame.get("prompts", ())]
    asked: list[int | None] = frame.get("asked", [None] * len(rows))
    requests = tuple(
        ScoreRequest(
            request_id=request_id,
            messages=conversations[place],
            prompt=None if of is None else prompts[of],
            ended=ended,
        )
        for (request_id, place), of, ended in zip(rows, asked, frame["ended"], strict=True)
    )
    return ScoreBatch(key=frame["key"], requests=requests)


def _prompt(fields: Frame) -> Prompt:
    nested: Frame = {
        "messages": tuple(Message(**message) for message in fields["messages"]),
        "checks": tuple(Check(**check) for check in fields["checks"]),
    }
    return Prompt(**{**fields, **nested})


def own_score_batch_frame(batch: ScoreBatch) -> Frame:
    """Encode conversations to score by a function that is shown their prompts, too."""
    places: dict[Prompt, int] = {}
    asked = [r.prompt and places.setdefault(r.prompt, len(places)) for r in batch.requests]
    return {
        **score_batch_frame(batch),
        "prompts": [asdict(prompt) for prompt in places],
        "asked": asked,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a worker is to do with its model, and the model that it is to load, if any.

    `refused` says why the machine of the worker cannot have that one.
    """

    key: str
    model: str | None
    refused: str | None


def read_order(frame: Frame) -> Order:
    """Decode an order: a batch without requests."""
    return Order(key=frame["key"], model=frame.get("model"), refused=frame.get("refused"))


def score_result_frame(result: ScoreResult) -> Frame:
    """Encode scores."""
    return {"key": result.key, "scores": list(result.scores)}


def refused_frame(key: str, reason: str) -> Frame:
    """Encode that a batch cannot be scored, or an order not be carried out, however often."""
    return {"key": key, "refused": reason}


def read_score_result(frame: Frame) -> ScoreResult:
    """Decode scores.

    Raises:
        EngineError: if there are none, because what scores is at fault.
    """
    if "refused" in frame:
        raise EngineError(frame["refused"])
    return ScoreResult(key=frame["key"], scores=tuple(frame["scores"]))


def embed_result_frame(result: EmbedResult) -> Frame:
    """Encode vectors."""
    return {"key": result.key, "vectors": [base64.b64encode(v).decode() for v in result.vectors]}


def read_embed_result(frame: Frame) -> EmbedResult:
    """Decode vectors."""
    vectors: list[str] = frame["vectors"]
    return EmbedResult(key=frame["key"], vectors=tuple(map(base64.b64decode, vectors)))


def measure_result_frame(result: MeasureResult) -> Frame:
    """Encode log-probabilities of answers."""
    rows = [None if said is None else [said.logprob, said.tokens] for said in result.logprobs]
    return {"key": result.key, "logprobs": rows}


def read_measure_result(frame: Frame) -> MeasureResult:
    """Decode log-probabilities of answers."""
    rows: list[tuple[float, int] | None] = frame["logprobs"]
    logprobs = (None if r is None else AnswerLogprob(logprob=r[0], tokens=r[1]) for r in rows)
    return MeasureResult(key=frame["key"], logprobs=tuple(logprobs))


def read_done(frame: Frame) -> MeasureResult:
    """Decode that an order was carried out.

    Raises:
        EngineError: if it could not be.
    """
    if "refused" in frame:
        raise EngineError(frame["refused"])
    return MeasureResult(key=frame["key"], logprobs=())


def _turns(places: dict[tuple[Message, ...], int]) -> list[list[list[str]]]:
    return [[[m.role, m.content] for m in messages] for messages in places]


def _conversations(frame: Frame) -> list[tuple[Message, ...]]:
    conversations: list[list[tuple[str, str]]] = frame["conversations"]
    return [
        tuple(Message(role=role, content=content) for role, content in turns)
        for turns in conversations
    ]
