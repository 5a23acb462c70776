"""What tells that endpoints serve the same weights: a few short answers, drawn greedily.

Two servers of the same weights do not give the same last bits, and once their texts part they have
nothing in common any more. So answers are compared token by token up to where they part: the
probabilities must agree in the mean, and they may part only where both servers find the two tokens
about equally good. A server that gives no probabilities is compared by its texts, of which one must
be the same.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...stores.durable import make_folder, write_file
from ...stores.records import Message
from ..engines.canary import AGREEMENT
from ..engines.engine import Request, Sampling
from .chat_completion import REASONING, ChatRequest

QUESTIONS = (
    "Write the first sentence of a story about a lighthouse keeper.",
    "Name something that a paper clip is good for, besides paper.",
    "Go on with this text: The train had waited at the border since",
)
"""Open questions: models that differ soon answer differently."""
TOKENS = 24
"""The most tokens of an answer."""
OTHERS = 5
"""How many of the most probable tokens are asked for in each place."""
TIE = 0.5
"""Nats by which two tokens may differ for servers of the same weights to choose differently: logits
in bfloat16 are 0.125 apart where they are large, and kernels differ by one or two such steps."""

GREEDY = Sampling(temperature=0.0, top_p=1.0, max_tokens=TOKENS)


@dataclass(frozen=True, slots=True)
class CanaryToken:
    """One token of an answer: its log-probability, and those of the most probable ones there."""

    token: str
    logprob: float
    most_probable: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class CanaryAnswer:
    """The answer to one of the `QUESTIONS`; without tokens where the server tells none."""

    text: str
    tokens: tuple[CanaryToken, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Portrait:
    """What an endpoint shows of what it serves; no answers if it refuses the questions.

    `name` is that of the model as the run knows it.
    """

    name: str
    max_model_len: int | None
    answers: tuple[CanaryAnswer, ...]

    def difference(self, other: "Portrait") -> str | None:
        """Return in what the other differs from this one, or None."""
        if other.name != self.name:
            return f"it serves {other.name!r}, where {self.name!r} is asked for"
        if None not in (self.max_model_len, other.max_model_len) and (
            self.max_model_len != other.max_model_len
        ):
            return (
                f"it serves the model with a context of {other.max_model_len} tokens, not of "
                f"{self.max_model_len}"
            )
        if not self.answers or not other.answers:
            return None
        return _difference(self.answers, other.answers)


def canary_requests() -> tuple[ChatRequest, ...]:
    """Return the questions as they are asked."""
    return tuple(
        ChatRequest(
            Request(request_id="canary", messages=(Message(role="user", content=text),), seed=0),
            GREEDY,
        )
        for text in QUESTIONS
    )


def read_canary_answer(reply: Any) -> CanaryAnswer:
    """Return an endpoint's answer.

    Raises:
        TypeError, LookupError, AttributeError, ValueError: when it is no chat completion.
    """
    choice = reply["choices"][0]
    said = [choice["message"].get(name) for name in (*REASONING, "content")]
    texts = dict.fromkeys(text for text in said if isinstance(text, str))
    logprobs: dict[str, Any] = choice.get("logprobs") or {}
    told: list[dict[str, Any]] = logprobs.get("content") or []
    tokens = tuple(_token(token) for token in told)
    known = all(token.most_probable and math.isfinite(token.logprob) for token in tokens)
    return CanaryAnswer("".join(texts), tokens if known else ())


def _token(told: Mapping[str, Any]) -> CanaryToken:
    others = {other["token"]: float(other["logprob"]) for other in told.get("top_logprobs") or ()}
    return CanaryToken(str(told["token"]), float(told["logprob"]), others)


def _difference(known: Sequence[CanaryAnswer], shown: Sequence[CanaryAnswer]) -> str | None:
    pairs = list(zip(known, shown, strict=True))
    if not all(one.tokens and other.tokens for one, other in pairs):
        if any(one.text == other.text for one, other in pairs):
            return None
        return "it answers none of the canary's questions as agreed on"
    if any(_parts(one.tokens, other.tokens) for one, other in pairs):
        return "it goes on with another word in a canary's answer where those agreed on are sure"
    off = [
        abs(first.logprob - second.logprob)
        for one, other in pairs
        for first, second in _in_common(one.tokens, other.tokens)
    ]
    mean = sum(off) / len(off) if off else 0.0
    if mean < AGREEMENT:
        return None
    return (
        f"it gives a canary's tokens probabilities that are {mean:.2g} nats off those agreed on "
        f"(allowed: {AGREEMENT})"
    )


def _in_common(
    one: Sequence[CanaryToken], other: Sequence[CanaryToken]
) -> Iterator[tuple[CanaryToken, CanaryToken]]:
    """Give the tokens before two answers part."""
    for first, second in zip(one, other, strict=False):
        if first.token != second.token:
            return
        yield first, second


def _parts(one: Sequence[CanaryToken], other: Sequence[CanaryToken]) -> bool:
    """Whether two answers part where one of the servers clearly prefers its own token.

    The token that ends an answer need not be told.
    """
    common = sum(1 for _ in _in_common(one, other))
    shorter, longer = sorted((one, other), key=len)
    if common == len(longer):
        return False
    if common == len(shorter):
        return longer[common].logprob > -TIE
    first, second = one[common], other[common]
    return not (_near(first, second.token) and _near(second, first.token))


def _near(at: CanaryToken, token: str) -> bool:
    """Whether a token is about as good as the one that was chosen."""
    return at.logprob - at.most_probable.get(token, -math.inf) <= TIE


def write_portrait(path: Path, portrait: Portrait) -> None:
    """Keep what was agreed on, so that a later process compares with it, too."""
    make_folder(path.parent)
    kept = {"questions": QUESTIONS, "portrait": asdict(portrait)}
    write_file(path, json.dumps(kept, indent=1).encode())


def read_portrait(path: Path) -> Portrait | None:
    """Return what was agreed on; None if nothing was, or other questions were asked."""
    if not path.is_file():
        return None
    kept: dict[str, Any] = json.loads(path.read_bytes())
    if tuple(kept["questions"]) != QUESTIONS:
        return None
    told = kept["portrait"]
    answers = tuple(
        CanaryAnswer(a["text"], tuple(CanaryToken(**token) for token in a["tokens"]))
        for a in told["answers"]
    )
    return Portrait(name=told["name"], max_model_len=told["max_model_len"], answers=answers)
