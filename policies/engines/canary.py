"""A check that an engine runs the weights it was given: a log-probability canary.

When a training ends, the trainer measures a few answers under the weights before and after, and
leaves the numbers in the model's folder. An engine that opens that folder measures the same answers
before its first sample counts. Stale weights (an old file, a cache, a skipped load) give the
numbers of before. Libraries' own reports of a successful load are not relied on.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ...stores.records import Message
from .engine import Engine, EngineError, Measurer, Provable

CANARY = "canary.json"
CANARY_ROWS = 8
"""Answers that are measured; those that training moved most tell most."""

AGREEMENT = 0.05
"""Nats a token, on average over rows, within which a right engine agrees with the trainer: 0.01 to
0.02 between kernels of two libraries in bfloat16; weights one training old are 0.2 off."""

APART = 0.02
"""Nats a token by which a row's two numbers must differ to tell old weights from new."""

CLEARLY = 3.0
"""How many times nearer to the old numbers, over all rows, an engine must be to count as stale
after a training that moved no row far. It needs no scale: a right engine's noise is equally far
from both when the step is small beside it."""

CLEARLY_ROWS = 4
"""Rows from which on that is not a coincidence."""


class StaleWeightsError(EngineError):
    """An engine that does not run the weights of the folder it was opened on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryRow:
    """One answer, measured by the trainer before and after.

    `messages` are the prompt's turns, `answer` the text that follows. The log-probabilities are
    sums over the answer's `tokens` tokens (see `chat.ChatTokenizer.parted`), in nats, at
    temperature 1.
    """

    messages: tuple[Message, ...]
    answer: str
    logprob_before: float
    logprob_after: float
    tokens: int

    @property
    def conversation(self) -> tuple[Message, ...]:
        """The prompt with the answer as the assistant's turn."""
        return (*self.messages, Message(role="assistant", content=self.answer))


def write_canary(folder: Path, rows: Sequence[CanaryRow]) -> None:
    """Write the trainer's numbers into the folder of their model."""
    content = [
        {
            "messages": [[m.role, m.content] for m in row.messages],
            "answer": row.answer,
            "logprob_before": row.logprob_before,
            "logprob_after": row.logprob_after,
            "tokens": row.tokens,
        }
        for row in rows
    ]
    (folder / CANARY).write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")


def read_canary(folder: Path) -> tuple[CanaryRow, ...]:
    """Return the trainer's numbers; none for a model that this package did not train.

    Raises:
        EngineError: when the file is there but holds something else.
    """
    path = folder / CANARY
    if not path.is_file():
        return ()
    try:
        content: list[dict[str, Any]] = json.loads(path.read_bytes())
        return tuple(_read_row(content[place]) for place in range(len(content)))
    except (ValueError, KeyError, TypeError) as error:
        raise EngineError(f"{path} is not valid ({error}); restore the model's folder") from error


def prove(engine: Engine, rows: Sequence[CanaryRow]) -> None:
    """Have the engine measure `rows`; return only if it runs the weights.

    These are the ones after training. An engine that cannot measure (a script, an endpoint)
    passes, as does an empty list: they prove nothing. One whose workers come and go has each of
    them measure before it is given work, those that come later, too.

    Raises:
        StaleWeightsError: with how far off the engine is, and whether it runs the weights of
            before.
    """
    if isinstance(engine, Provable):
        engine.prove(partial(_prove, rows=rows))
    else:
        _prove(engine, rows)


def _prove(engine: Measurer, rows: Sequence[CanaryRow]) -> None:
    measured = engine.logprobs([row.conversation for row in rows])
    told = [(row, said) for row, said in zip(rows, measured, strict=True) if said is not None]
    if not told:
        return
    for row, said in told:
        if said.tokens != row.tokens:
            raise StaleWeightsError(
                f"the engine reads a canary's answer as {said.tokens} tokens, the trainer as "
                f"{row.tokens}: it does not run this checkpoint's tokenizer"
            )
    off = [abs(said.logprob - row.logprob_after) / row.tokens for row, said in told]
    older = [abs(said.logprob - row.logprob_before) / row.tokens for row, said in told]
    telling = [abs(row.logprob_after - row.logprob_before) / row.tokens > APART for row, _ in told]
    mean_off, mean_older = sum(off) / len(off), sum(older) / len(older)
    # Together, not row by row: where a row moved little, another kernel's rounding can outweigh it.
    told_apart = [n - o for n, o, tells in zip(off, older, telling, strict=True) if tells]
    newer = not told_apart or sum(told_apart) < 0
    stale = len(told) >= CLEARLY_ROWS and mean_off > CLEARLY * mean_older
    # Written so that NaN fails, too.
    if not (mean_off < AGREEMENT and newer and not stale):
        cause = (
            "it runs the weights from before training"
            if mean_older < mean_off
            else "it rounds them to another type (policy.engine.dtype, policy.engine.vllm."
            "quantization), or runs another model"
        )
        raise StaleWeightsError(
            f"the engine does not run this checkpoint's weights: its log-probabilities are "
            f"{mean_off:.2g} nats a token off the trainer's after training and {mean_older:.2g} "
            f"off those before (allowed: {AGREEMENT}), so {cause}"
        )


def _read_row(row: dict[str, Any]) -> CanaryRow:
    return CanaryRow(
        messages=tuple(Message(role=role, content=content) for role, content in row["messages"]),
        answer=row["answer"],
        logprob_before=float(row["logprob_before"]),
        logprob_after=float(row["logprob_after"]),
        tokens=int(row["tokens"]),
    )
