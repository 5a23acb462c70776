"""One chat completion: the request, and the reading of the reply.

The endpoint has the chat template and the tokenizer. If it reports that it is vLLM, the request
also includes the sampling fields that the model's `generation_config.json` could set, so that this
file does not change them silently.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from ...configs.schema import EngineConfig
from ...configs.secrecy import without_keys
from ...stores.chat_markers import broken
from ...stores.records import FinishReason
from ..engines.chat_template import fold_system_turn
from ..engines.engine import Completion, EngineError, Provenance, Request, Sampling
from ..engines.token_count import TokenCount, about, estimate_tokens, most_tokens, schema_tokens
from .endpoint import ServedModel
from .faults import shorten
from .transport import reading
from .unsupported_params import FOLDED, LIMIT, LOGPROBS, SAMPLED_BY, SCHEMA, SYSTEM, remarks

REASONING = ("reasoning_content", "reasoning")
"""The fields of servers for a model's reasoning; some servers fill both, with the same text."""
TEXT_PARTS = ("text", "output_text")
"""The types of the parts of a message that hold text of the answer."""

NEUTRAL: Mapping[str, Any] = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
"""The defaults of sampling; without them vLLM's server takes the model's own."""

LONGEST_WORD = 40
"""The characters of an unknown `finish_reason` that are repeated."""
LONGEST_NUMBER = 20
"""The most digits of a number that is written as a text."""

Ending = Literal["stop", "length", "withheld", "broken", "unknown"]
ENDINGS: Mapping[str, Ending] = {
    **dict.fromkeys(
        (
            *("stop", "eos", "eos_token", "eos_found", "end", "end_turn", "end_of_text", "eot"),
            *("stop_sequence", "stop_str", "stop_token", "complete", "completed", "done"),
            *("finish", "finished"),
        ),
        "stop",
    ),
    **dict.fromkeys(
        (
            *("length", "max_length", "max_tokens", "max_new_tokens", "max_output_tokens"),
            *("max_completion_tokens", "model_length", "model_context_window_exceeded"),
            *("token_limit", "incomplete"),
        ),
        "length",
    ),
    **dict.fromkeys(
        (
            *("content_filter", "content_filtered", "safety", "recitation", "blocklist", "spii"),
            *("prohibited_content", "refusal", "guardrail_intervened", "error_toxic", "sensitive"),
        ),
        "withheld",
    ),
    # The server gave up in the middle: a retry may give the whole answer.
    **dict.fromkeys(
        ("error", "abort", "aborted", "cancelled", "network_error", "insufficient_system_resource"),
        "broken",
    ),
}
"""The meaning of servers' words for the end of an answer (`finish_reason`)."""

OUT_OF_TOKENS = (
    "answers are cut while the model still reasons, at {} tokens: set engine.reasoning_tokens to "
    "what reasoning needs, or lower engine.reasoning_effort"
)
READ_AS = {
    "stop": "unknown finish_reason {!r}: the answer, below max_tokens, counts as whole",
    "length": "unknown finish_reason {!r}: the answer, at max_tokens, counts as cut short",
}
MISSING = "the endpoint reports no usage: its tokens are counted by lpfloop"
UNREADABLE = "the endpoint reports a usage that is no count of tokens: they are counted by lpfloop"
CAPPED = "the endpoint reports more tokens than a request can cost: only that many are counted"

Fields = Mapping[str, Any]
"""An object of a reply."""


class NoCompletionError(ValueError):
    """The reply is not a chat completion."""


@dataclass(slots=True)
class ChatRequest:
    """One request to endpoints; if not `bounded`, only the context limits the answer."""

    request: Request
    sampling: Sampling
    count: TokenCount = about
    bounded: bool = True

    @property
    def tokens(self) -> int:
        """The estimated tokens that it may cost."""
        return estimate_tokens(self.request.messages, self.count) + self.sampling.max_tokens

    def body(
        self, served: ServedModel, unsupported: Collection[str], extra: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the body of the request, with `extra` fields and without the `unsupported` ones.

        No text in it can end its turn: the marks of all families of chat templates are broken.
        """
        request, sampling = self.request, self.sampling
        turns = fold_system_turn(request.messages) if SYSTEM in unsupported else request.messages
        drawn = dict(
            zip(SAMPLED_BY, (sampling.temperature, sampling.top_p, request.seed), strict=True)
        )
        body: dict[str, Any] = {
            "model": served.name,
            "messages": [{"role": turn.role, "content": broken(turn.content)} for turn in turns],
            **{name: value for name, value in drawn.items() if name not in unsupported},
        }
        if self.bounded:
            body["max_tokens" if LIMIT in unsupported else LIMIT] = sampling.max_tokens
        if sampling.logprob and LOGPROBS not in unsupported:
            body["logprobs"] = True
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        if sampling.logit_bias:
            body["logit_bias"] = {str(token): added for token, added in sampling.logit_bias}
        if request.schema is not None and SCHEMA not in unsupported:
            # Hosted models accept a strict schema only without optional fields.
            strict = "maxProperties" not in request.schema
            follows = {"name": "verdict", "strict": strict, "schema": request.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": follows}
        return body | dict(extra)

    def completion(self, reply: Any, unsupported: Collection[str], key: str | None) -> Completion:
        """Read an endpoint's reply, with remarks on the `unsupported` parameters.

        An answer that the server withholds is a failed request. The `key`, which a server or the
        model behind it may repeat, is blacked out.

        Raises:
            UnreadableReplyError: if it is not a chat completion.
        """
        whole = self.request.messages
        is_folded = SYSTEM in unsupported and fold_system_turn(whole) != whole
        notes = ((FOLDED,) if is_folded else ()) + remarks(unsupported)
        with reading(reply):
            return self._read(reply, notes, key)

    def _read(self, reply: Any, notes: tuple[str, ...], key: str | None) -> Completion:
        choice = reply["choices"][0]
        word = choice.get("finish_reason")
        how = _ending(word)
        if how == "broken":
            raise NoCompletionError
        message: Any = choice.get("message")
        if how == "withheld":
            message = message or {}
        content, thought = _read_content(message.get("content"))
        named = [message.get(name) for name in REASONING]
        thoughts = [text for text in (thought, *named) if isinstance(text, str)]
        logprobs = [
            float(token["logprob"])
            for token in _fields(choice.get("logprobs")).get("content") or ()
        ]
        usage = _fields(reply.get("usage"))
        prompt_tokens, odd_prompt = _tokens(
            usage.get("prompt_tokens"),
            most=most_tokens(self.request.messages) + schema_tokens(self.request.schema),
            own=lambda: estimate_tokens(self.request.messages, self.count),
        )
        completion_tokens, odd_answer = _tokens(
            usage.get("completion_tokens"),
            most=self.sampling.max_tokens,
            own=lambda: len(logprobs) or sum(map(self.count, [content, *thoughts])),
        )
        odd_end = None
        if how == "unknown":
            whole = self.bounded and completion_tokens < self.sampling.max_tokens
            how = "stop" if whole else "length"
            if word is not None:
                odd_end = READ_AS[how].format(shorten(str(word), key)[:LONGEST_WORD])
        reasoning = next(filter(None, thoughts), "")
        in_thought = bool(reasoning or _has_reasoned(usage)) and not content.strip()
        finish: FinishReason = "stop"
        if how == "length":
            finish = "truncated_thinking" if in_thought else "length"
            odd_end = OUT_OF_TOKENS.format(self.sampling.max_tokens) if in_thought else odd_end
        error = None
        if how == "withheld":
            finish, content = "failed", ""
            error = f"the endpoint withholds the answer ({_word(word, key)})"
        odd = dict.fromkeys(remark for remark in (odd_prompt, odd_answer, odd_end) if remark)
        known = bool(logprobs) and all(map(math.isfinite, logprobs)) and error is None
        return Completion(
            request_id=self.request.request_id,
            text=without_keys(_whole_characters(content)),
            reasoning=without_keys(_whole_characters(reasoning)),
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            finish_reason=finish,
            logprob=sum(logprobs) if known else None,
            error=error,
            provenance=Provenance(
                model=_word(reply.get("model"), key),
                system_fingerprint=_word(reply.get("system_fingerprint"), key),
                remarks=(*odd, *notes),
            ),
        )


def vllm_fields(
    served: ServedModel, url: str, sampling: Sampling, config: EngineConfig
) -> dict[str, Any]:
    """Return the fields that only vLLM's server understands.

    Raises:
        EngineError: if one of them is set and the server is another.
    """
    values = {name: getattr(sampling, name) for name in NEUTRAL}
    fields = {f"sampling.{name}": value for name, value in values.items() if value is not None}
    if config.chat_template_kwargs:
        fields["engine.chat_template_kwargs"] = dict(config.chat_template_kwargs)
    if fields and not served.by_vllm:
        raise EngineError(
            f"{url}: {', '.join(fields)}: only vLLM's server supports this, and this server does "
            "not identify itself as vLLM; leave it out, or add it by engine.extra_body"
        )
    if not served.by_vllm:
        return {}
    named = {name.rpartition(".")[2]: value for name, value in fields.items()}
    return {**NEUTRAL, **named}


def _ending(word: object) -> Ending:
    """Return the meaning of a `finish_reason`, in any case, without details after a colon."""
    lower = word.lower().partition(":")[0].strip() if isinstance(word, str) else ""
    return ENDINGS.get(lower, "unknown")


def _tokens(reported: object, *, most: int, own: Callable[[], int]) -> tuple[int, str | None]:
    """Return the number of tokens to count, and a remark if it differs from the reported number.

    `usage` is optional in the protocol, and a budget must not depend on it: a number that is
    missing or unreadable is replaced by lpfloop's `own` count, and none counts for more than
    `most`.
    """
    counts = reported
    if isinstance(counts, str) and counts.isdecimal() and len(counts) <= LONGEST_NUMBER:
        counts = int(counts)
    if isinstance(counts, float) and counts.is_integer():
        counts = int(counts)
    if not isinstance(counts, int) or counts < 0 or (counts == 0 and own()):
        return min(own(), most), MISSING if reported in (None, 0) else UNREADABLE
    return (counts, None) if counts <= most else (most, CAPPED)


def _fields(value: object) -> Fields:
    """Return the fields of an object in a reply; empty if it is not an object."""
    return cast("Fields", value) if isinstance(value, dict) else {}


def _read_content(content: object) -> tuple[str, str]:
    """Return text and thought in the content of a message: a text, or a list of parts."""
    if content is None or isinstance(content, str):
        return content or "", ""
    if not isinstance(content, list):
        raise NoCompletionError
    text = thought = ""
    parts = cast("list[Any]", content)
    for part in parts:
        if part.get("type") in TEXT_PARTS:
            text += part["text"]
        elif part.get("type") == "thinking":
            # Mistral's holds a list of parts again, others' a text.
            thought += _read_content(part["thinking"])[0]
    if parts and not any(part.get("type") in (*TEXT_PARTS, "thinking") for part in parts):
        raise NoCompletionError
    return text, thought


def _has_reasoned(usage: Fields) -> bool:
    """Whether the endpoint reports reasoning tokens, which it need not show."""
    tokens = _fields(usage.get("completion_tokens_details")).get("reasoning_tokens")
    return isinstance(tokens, int) and tokens > 0


def _word(value: object, key: str | None) -> str:
    return shorten(value, key) if isinstance(value, str) else ""


def _whole_characters(text: str) -> str:
    """Return `text` without lone surrogates, which JSON can carry and UTF-8 cannot."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
