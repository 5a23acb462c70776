"""One chat completion: the request, and what counts as an answer.

The endpoint keeps the chat template and the tokenizer. If it says that it is vLLM, the sampling
fields that the model's `generation_config.json` could set are sent, too: that file must not change
them silently.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from ...configs.schema import EngineConfig
from ...stores.chat_markers import broken
from ...stores.records import FinishReason
from ..engines.chat_template import folded
from ..engines.engine import Completion, EngineError, Provenance, Request, Sampling
from ..engines.token_count import TokenCount, about, counted, most_tokens, schema_tokens
from .dialect import FOLDED, Dialect
from .endpoint import ServedModel
from .faults import shown
from .transport import Connections, reading

REASONING = ("reasoning_content", "reasoning")
"""Where servers put what a model thought before its answer; some fill both, with one text."""
TEXT_PARTS = ("text", "output_text")
"""The types of the parts of a message that hold text of the answer."""

Fields = Mapping[str, Any]
"""An object of a reply."""

LONGEST_WORD = 40
"""How much of a server's word for an ending is repeated."""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One request to endpoints; if not `bounded`, only the context limits the answer.

    `besides` are fields of the body that the user sets for this endpoint.
    """

    request: Request
    sampling: Sampling
    bounded: bool = True
    count: TokenCount = about

    @property
    def tokens(self) -> int:
        """About how many tokens it may cost."""
        return counted(self.request.messages, self.count) + self.sampling.max_tokens

    async def ask(
        self,
        connections: Connections,
        served: ServedModel,
        dialect: Dialect,
        extra: Mapping[str, Any],
    ) -> Completion:
        """Post it once, with `extra` fields.

        Raises:
            OpenAIError, ClientError, AnswerTooLargeError, OSError, UnreadableReplyError: when no
                chat completion comes back.
        """
        reply = await connections.post("chat/completions", self.body(served, dialect, extra))
        return self.answered(reply, dialect, connections.key)

    def body(
        self, served: ServedModel, dialect: Dialect, extra: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return all that is sent, with `extra` fields."""
        return {"model": served.name, **self.parameters(dialect, served.family), **extra}

    def answered(self, reply: Any, dialect: Dialect, key: str | None) -> Completion:
        """Read the reply to what was sent in a dialect, with remarks on what that left out.

        Raises:
            UnreadableReplyError: when it is no chat completion.
        """
        with reading(reply):
            drawn = self.completion(reply, key)
        whole = self.request.messages
        changed = () if dialect.system or folded(whole) == whole else (FOLDED,)
        remarks = (*changed, *dialect.remarks)
        if not remarks or drawn.provenance is None:
            return drawn
        told = replace(drawn.provenance, remarks=(*drawn.provenance.remarks, *remarks))
        return replace(drawn, provenance=told)

    def parameters(self, dialect: Dialect, family: str | None) -> dict[str, Any]:
        """Return the request body without what only vLLM understands.

        No text in it can end its turn: the marks of the family's chat templates are broken, or
        those of all families if it is not known.
        """
        turns = self.request.messages if dialect.system else folded(self.request.messages)
        messages = [{"role": m.role, "content": broken(m.content, family)} for m in turns]
        drawn: dict[str, Any] = {
            "temperature": self.sampling.temperature,
            "top_p": self.sampling.top_p,
            "seed": self.request.seed,
        }
        kept = {name: value for name, value in drawn.items() if name not in dialect.refused}
        body: dict[str, Any] = {"messages": messages, **kept}
        if self.bounded:
            body[dialect.limit] = self.sampling.max_tokens
        if dialect.logprobs and self.sampling.logprob:
            body["logprobs"] = True
        if self.sampling.stop:
            body["stop"] = list(self.sampling.stop)
        if self.sampling.logit_bias:
            body["logit_bias"] = {str(token): added for token, added in self.sampling.logit_bias}
        if dialect.schemas and self.request.schema is not None:
            # Hosted models take a schema as strict only if it has no field that may be left out.
            strict = "maxProperties" not in self.request.schema
            follows = {"name": "verdict", "strict": strict, "schema": self.request.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": follows}
        return body

    def completion(self, reply: Any, key: str | None) -> Completion:
        """Read an endpoint's reply; an answer that the server withholds is a failed request.

        Raises:
            NoCompletionError, TypeError, LookupError, AttributeError: when it is no chat
                completion.
        """
        choice = reply["choices"][0]
        message: Any = choice.get("message")
        if ending(choice.get("finish_reason")) == "withheld":
            message = message or {}
        content, thought = _read_content(message.get("content"))
        logprobs = _logprobs(choice)
        fields = [message.get(name) for name in REASONING]
        thoughts = [text for text in (thought, *fields) if isinstance(text, str)]
        tokens = self._tokens(reply, [content, *thoughts], len(logprobs))
        how, remark = self._ended(choice, tokens.completion, key)
        reasoning = next(filter(None, thoughts), "")
        in_thought = (reasoning or _reasoned(reply)) and not content.strip()
        if in_thought and how == "length":
            remark = OUT_OF_TOKENS.format(self.sampling.max_tokens)
        remarks = tokens.remarks if remark is None else (*tokens.remarks, remark)
        cut: FinishReason = "truncated_thinking" if in_thought else "length"
        answer = Completion(
            request_id=self.request.request_id,
            text=_whole_characters(content),
            reasoning=_whole_characters(reasoning),
            prompt_tokens=tokens.prompt,
            completion_tokens=tokens.completion,
            finish_reason=cut if how == "length" else "stop",
            logprob=sum(logprobs) if logprobs and all(map(math.isfinite, logprobs)) else None,
            provenance=Provenance(
                model=_word(reply.get("model"), key),
                system_fingerprint=_word(reply.get("system_fingerprint"), key),
                remarks=remarks,
            ),
        )
        if how == "withheld":
            told = f"the endpoint withholds the answer ({_word(choice.get('finish_reason'), key)})"
            return replace(answer, text="", finish_reason="failed", logprob=None, error=told)
        return answer

    def _ended(
        self, choice: Fields, drawn: int, key: str | None
    ) -> tuple[Literal["stop", "length", "withheld"], str | None]:
        """Return why an answer ended, and a remark if its number of tokens decided.

        Raises:
            NoCompletionError: when the server gave up in the middle.
        """
        word: object = choice.get("finish_reason")
        how = ending(word)
        if how == "broken":
            raise NoCompletionError
        if how != "unknown":
            return how, None
        whole = self.bounded and drawn < self.sampling.max_tokens
        decided: Literal["stop", "length"] = "stop" if whole else "length"
        told = shown(str(word), key)[:LONGEST_WORD]
        return decided, None if word is None else READ_AS[decided].format(told)

    def _tokens(self, reply: Fields, texts: Sequence[str], drawn: int) -> "Tokens":
        """Return what the reply cost: as reported, never more than the request can cost.

        `texts` are what the model wrote, and `drawn` the tokens whose log-probability is reported.
        """
        messages, usage = self.request.messages, _fields(reply.get("usage"))
        prompt = Share(
            reported=usage.get("prompt_tokens"),
            most=most_tokens(messages) + schema_tokens(self.request.schema),
            own=lambda: counted(messages, self.count),
        )
        completion = Share(
            reported=usage.get("completion_tokens"),
            most=self.sampling.max_tokens,
            own=lambda: drawn or sum(map(self.count, texts)),
        )
        return settled(prompt, completion)


OUT_OF_TOKENS = (
    "answers are cut while the model still reasons, at {} tokens: set engine.reasoning_tokens to "
    "what it needs besides, or lower engine.reasoning_effort"
)
READ_AS = {
    "stop": "the finish_reason {!r} is not known: the answer, below max_tokens, counts as whole",
    "length": "the finish_reason {!r} is not known: the answer, at max_tokens, counts as cut short",
}


class NoCompletionError(ValueError):
    """The reply is not a chat completion."""


def _fields(value: object) -> Fields:
    """Return the fields of an object in a reply; none if it is no object."""
    return cast("Fields", value) if isinstance(value, dict) else {}


def _read_content(content: object) -> tuple[str, str]:
    """Return text and thought in the content of a message: a text, or a list of parts.

    Raises:
        NoCompletionError, TypeError, LookupError, AttributeError: if it is something else.
    """
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


def _reasoned(reply: Fields) -> bool:
    """Whether the endpoint reports tokens of a thought, which it need not show."""
    details = _fields(_fields(reply.get("usage")).get("completion_tokens_details"))
    tokens = details.get("reasoning_tokens")
    return isinstance(tokens, int) and tokens > 0


def _word(said: object, key: str | None) -> str:
    return shown(said, key) if isinstance(said, str) else ""


def _logprobs(choice: Fields) -> list[float]:
    tokens = _fields(choice.get("logprobs")).get("content")
    return [float(token["logprob"]) for token in tokens or ()]


def _whole_characters(text: str) -> str:
    """Return `text` without lone surrogates, which JSON can carry and UTF-8 cannot."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


# What only vLLM's server understands.

NEUTRAL: Mapping[str, Any] = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
"""What vLLM's server would otherwise take from the model's own generation_config.json."""


def vllm_fields(
    served: ServedModel, url: str, sampling: Sampling, config: EngineConfig
) -> dict[str, Any]:
    """Return what is sent to vLLM's server besides the fields that all servers know.

    Raises:
        EngineError: if something of it is asked for and the server is another.
    """
    asked = {name: getattr(sampling, name) for name in NEUTRAL}
    fields = {f"sampling.{name}": value for name, value in asked.items() if value is not None}
    if config.chat_template_kwargs:
        fields["engine.chat_template_kwargs"] = dict(config.chat_template_kwargs)
    if fields and not served.by_vllm:
        raise EngineError(
            f"{url}: {', '.join(fields)}: only vLLM's server is known to understand this, and this "
            "one does not say that it is vLLM's; leave it out, or add it by engine.extra_body"
        )
    if not served.by_vllm:
        return {}
    named = {name.rpartition(".")[2]: value for name, value in fields.items()}
    return {**NEUTRAL, **named}


# Why an answer ended: servers have many words for the few reasons there are.

Ending = Literal["stop", "length", "withheld", "broken", "unknown"]

ENDED = frozenset(
    {
        *("stop", "eos", "eos_token", "eos_found", "end", "end_turn", "end_of_text", "eot"),
        *("stop_sequence", "stop_str", "stop_token", "complete", "completed", "done", "finish"),
        "finished",
    }
)
CUT = frozenset(
    {
        *("length", "max_length", "max_tokens", "max_new_tokens", "max_output_tokens"),
        *("max_completion_tokens", "model_length", "model_context_window_exceeded"),
        *("token_limit", "incomplete"),
    }
)
WITHHELD = frozenset(
    {
        *("content_filter", "content_filtered", "safety", "recitation", "blocklist", "spii"),
        *("prohibited_content", "refusal", "guardrail_intervened", "error_toxic", "sensitive"),
    }
)
BROKEN = frozenset(
    {"error", "abort", "aborted", "cancelled", "network_error", "insufficient_system_resource"}
)
"""The server gave up in the middle: the answer is none, and may come out whole the next time."""


MEANINGS: tuple[tuple[Ending, frozenset[str]], ...] = (
    ("stop", ENDED),
    ("length", CUT),
    ("withheld", WITHHELD),
    ("broken", BROKEN),
)


def ending(word: object) -> Ending:
    """Return what a `finish_reason` means, in any case, with or without details after a colon."""
    lower = word.lower().partition(":")[0].strip() if isinstance(word, str) else ""
    for meaning, words in MEANINGS:
        if lower in words:
            return meaning
    return "unknown"


# What an answer cost. `usage` is optional in the protocol, and a budget must not depend on it: a
# number that is missing or unreadable is counted here, and one that is too large is cut.

LONGEST_NUMBER = 20
"""How many digits a number may have that is written as a text."""

MISSING = "the endpoint reports no usage: its tokens are counted by lpfloop"
UNREADABLE = "the endpoint reports a usage that is no count of tokens: they are counted by lpfloop"
CAPPED = "the endpoint reports more tokens than a request can cost: only that many are counted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """The tokens of a prompt and its completion, and remarks on how they were reported."""

    prompt: int
    completion: int
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One of the two numbers of a usage: as reported, at most, and how to count it here."""

    reported: object
    most: int
    own: Callable[[], int]

    @property
    def number(self) -> int | None:
        """Return the number that was reported; None if it is none, or a text cost nothing."""
        said = self.reported
        if isinstance(said, str) and said.isdecimal() and len(said) <= LONGEST_NUMBER:
            said = int(said)
        if isinstance(said, float) and said.is_integer():
            said = int(said)
        if not isinstance(said, int) or said < 0:
            return None
        return said if said or not self.own() else None

    def settled(self) -> tuple[int, str | None]:
        """Return how many tokens count, and a remark if that is not what was reported."""
        number = self.number
        if number is None:
            told = MISSING if self.reported in (None, 0) else UNREADABLE
            return min(self.own(), self.most), told
        return (number, None) if number <= self.most else (self.most, CAPPED)


def settled(prompt: Share, completion: Share) -> Tokens:
    """Return the tokens of an answer."""
    (asked, first), (drawn, second) = prompt.settled(), completion.settled()
    remarks = tuple(dict.fromkeys(told for told in (first, second) if told is not None))
    return Tokens(prompt=asked, completion=drawn, remarks=remarks)
