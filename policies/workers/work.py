"""The kinds of work that supervision passes to workers: batches in, one result for each.

A result holds one answer a request, in order: a completion, a score or a measurement.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from ..engines.engine import (
    Batch,
    BatchResult,
    Completion,
    EmbedResult,
    MeasureResult,
    ScoreBatch,
    ScoreResult,
)
from . import wire

LOAD_S = 3600.0
"""Deadline for loading, in seconds: hundreds of gigabytes may come from a slow disk."""

In = TypeVar("In", Batch, ScoreBatch)
Out = TypeVar("Out", BatchResult, ScoreResult, MeasureResult, EmbedResult)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkKind(Generic[In, Out]):
    """How batches and results of one kind are encoded, split and reassembled.

    `worked` tells whether an answer took the model, which an overlong prompt does not. `refusal`
    makes the answer of a request that cannot be answered, from its id and the reason; it is None
    where a missing answer means that the engine is at fault. `patience_s`: how long one piece of
    work may take at least, whatever the worker's limit for a result is.
    """

    task: str
    encode: Callable[[In], wire.Frame]
    decode: Callable[[wire.Frame], Out]
    answers: Callable[[Out], tuple[Any, ...]]
    whole: Callable[[str, tuple[Any, ...]], Out]
    worked: Callable[[Any], bool]
    refusal: Callable[[str, str], Any] | None
    patience_s: float = 0.0


def _failed(request_id: str, reason: str) -> Completion:
    return Completion(
        request_id=request_id,
        text="",
        prompt_tokens=0,
        completion_tokens=0,
        finish_reason="failed",
        logprob=None,
        error=reason,
    )


GENERATE: WorkKind[Batch, BatchResult] = WorkKind(
    task="generate",
    encode=wire.batch_frame,
    decode=wire.read_result,
    answers=lambda result: result.completions,
    whole=lambda key, answers: BatchResult(key=key, completions=answers),
    worked=lambda completion: completion.completion_tokens > 0,
    refusal=_failed,
)

SCORE: WorkKind[ScoreBatch, ScoreResult] = WorkKind(
    task="score",
    encode=wire.score_batch_frame,
    decode=wire.read_score_result,
    answers=lambda result: result.scores,
    whole=lambda key, answers: ScoreResult(key=key, scores=answers),
    worked=lambda score: score is not None,
    refusal=lambda _request_id, _reason: None,
)

OWN_SCORE = replace(SCORE, encode=wire.own_score_batch_frame)
"""Scores by a function of the user's own, which is shown prompts."""

MEASURE: WorkKind[ScoreBatch, MeasureResult] = WorkKind(
    task="measure",
    encode=wire.score_batch_frame,
    decode=wire.read_measure_result,
    answers=lambda result: result.logprobs,
    whole=lambda key, answers: MeasureResult(key=key, logprobs=answers),
    worked=lambda said: said is not None,
    refusal=None,
)

SLEEP = replace(MEASURE, task="sleep", decode=wire.read_done, patience_s=LOAD_S)
"""Moves a loaded model into the machine's memory: a batch without requests."""

WAKE = replace(SLEEP, task="wake")
"""Moves it back to its devices."""


def reload_of(model: wire.Frame) -> WorkKind[ScoreBatch, MeasureResult]:
    """Return the order to replace a loaded model's weights by those that a frame names."""

    def encode(batch: ScoreBatch) -> wire.Frame:
        return wire.score_batch_frame(batch) | model

    return replace(SLEEP, task="reload", encode=encode)


EMBED: WorkKind[ScoreBatch, EmbedResult] = WorkKind(
    task="embed",
    encode=wire.score_batch_frame,
    decode=wire.read_embed_result,
    answers=lambda result: result.vectors,
    whole=lambda key, answers: EmbedResult(key=key, vectors=answers),
    worked=lambda _vector: True,
    refusal=None,
)
