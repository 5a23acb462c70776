"""A check that an engine runs the weights it was given: a log-probability canary.

At the end of a training, the trainer measures a few answers under the weights before and after, and
writes the numbers into the model's folder. An engine that opens that folder measures the same
answers before its first sample counts. Stale weights (an old file, a cache, a skipped load) give
the numbers from before. That a library reports a successful load proves nothing.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from ...stores.records import Message
from .engine import EngineError, Measure

CANARY = "canary.json"
CANARY_ROWS = 8
"""Measured answers: the ones that training moved most, because they are the clearest."""

AGREEMENT = 0.05
"""Nats per token, averaged over rows, by which a correct engine may differ from the trainer:
kernels of two libraries differ by 0.01 to 0.02 in bfloat16, weights of the previous training by
0.2."""

APART = 0.02
"""Nats per token by which a row's two numbers must differ to distinguish old from new weights."""

CLEARLY = 3.0
"""How many times nearer to the old numbers than to the new ones, over all rows, counts as stale
after a training that moved every row only a little. This ratio needs no scale: if the step is small
compared with a correct engine's noise, the engine is equally far from both."""

CLEARLY_ROWS = 4
"""The number of rows that rules out a coincidence."""


class StaleWeightsError(EngineError):
    """An engine that does not run the weights of the folder that it opened."""

    code = "LPF-305"


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryRow:
    """One answer, measured by the trainer before and after.

    `messages` are the prompt's turns, `answer` the text that follows. The log-probabilities are
    sums over the answer's `tokens` tokens (see `chat.ChatTokenizer.split_answer`), in nats, at
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
    content = [asdict(row) for row in rows]
    (folder / CANARY).write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")


def read_canary(folder: Path) -> tuple[CanaryRow, ...]:
    """Return the trainer's numbers; none for a model that lpfloop did not train.

    Raises:
        EngineError: if the file is not valid.
    """
    path = folder / CANARY
    if not path.is_file():
        return ()
    try:
        return TypeAdapter(tuple[CanaryRow, ...]).validate_json(path.read_bytes())
    except ValueError as error:
        raise EngineError(f"{path} is not valid ({error}); restore the model's folder") from error


def prove(measure: Measure, rows: Sequence[CanaryRow]) -> None:
    """Measure `rows` with an engine; return only if it runs the weights from after training.

    An engine that cannot measure (a script, an endpoint) passes, as does an empty list: they prove
    nothing.

    Raises:
        StaleWeightsError: with the engine's deviation, and whether it runs the weights from
            before training.
    """
    measured = measure([row.conversation for row in rows])
    known = [(row, found) for row, found in zip(rows, measured, strict=True) if found is not None]
    if not known:
        return
    for row, found in known:
        if found.tokens != row.tokens:
            raise StaleWeightsError(
                f"the engine reads a canary's answer as {found.tokens} tokens, the trainer as "
                f"{row.tokens}: it does not run this checkpoint's tokenizer"
            )
    off = [abs(found.logprob - row.logprob_after) / row.tokens for row, found in known]
    older = [abs(found.logprob - row.logprob_before) / row.tokens for row, found in known]
    telling = [abs(row.logprob_after - row.logprob_before) / row.tokens > APART for row, _ in known]
    mean_off, mean_older = sum(off) / len(off), sum(older) / len(older)
    # Over all rows together: if a row moved little, another kernel's rounding can outweigh it.
    told_apart = [n - o for n, o, tells in zip(off, older, telling, strict=True) if tells]
    newer = not told_apart or sum(told_apart) < 0
    stale = len(known) >= CLEARLY_ROWS and mean_off > CLEARLY * mean_older
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
