"""What of a request an endpoint does not accept, learned from its refusals.

A field is left out from then on only if a refusal names it and says that it is not supported. A
value that is out of range is the user's to correct, and is left as it is.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...stores.records import Message
from .faults import Complaint, RefusedError

DRAWN_BY = ("temperature", "top_p", "seed")
"""The fields that reasoning models and some hosted ones refuse; without them their default holds.
"""

OVERFLOW_SIGNS = (
    "context length",
    "context_length",
    "maximum context",
    "max_model_len",
    "too long",
)

SYSTEM_SIGNS = (
    "system role",
    "system message",
    "system prompt",
    "role 'system'",
    'role "system"',
    "role: system",
    "role system",
    "roles must alternate",
    "only user and assistant roles",
)
"""What servers say where the model's chat template has no system turn, in lower case."""
FOLDED = "the endpoint refuses system turns: each became the beginning of the user's first turn"


NO_FIELD_SIGNS = (
    "support",
    "unrecognized",
    "unknown",
    "unexpected",
    "not permitted",
    "not allowed",
    "not accepted",
    "not available",
    "forbidden",
    "deprecated",
    "cannot both be",
    "may only be set",
    "only 1 is allowed",
)
"""What servers say of a field that they do not take, in lower case."""

RANGE_SIGNS = ("between", "range", "less than", "greater than", "at most", "at least", "<=", ">=")
"""What they say of a field whose value they do not take."""

REFUSES = {
    "temperature": "the endpoint refuses temperature: its answers are drawn at its own",
    "top_p": "the endpoint refuses top_p: its answers are drawn with its own",
    "seed": "the endpoint refuses seed: asked again, it may answer otherwise",
}

SCHEMA_SIGNS = ("response_format", "json_schema", "json schema", "structured output")
"""How servers name what keeps a reply to a schema, in lower case."""
UNKEPT = "the endpoint refuses response_format: judges are asked for an object without a schema"


@dataclass(frozen=True, slots=True)
class Dialect:
    """Request fields that not every endpoint accepts, and those that this one was found to."""

    logprobs: bool = True
    limit: str = "max_completion_tokens"
    system: bool = True
    schemas: bool = True
    refused: frozenset[str] = frozenset()

    def without(
        self,
        refusal: RefusedError,
        messages: tuple[Message, ...] = (),
        *,
        by_schema: bool = False,
    ) -> "Dialect | None":
        """Return a dialect without what a refusal names; None if it names nothing known.

        `messages` are what was refused: a system turn is one of them, and nothing else is unusual
        but that, `by_schema`, the reply was to be kept to one.
        """
        told = refusal.told
        if self.system and refuses_system(told, messages):
            return replace(self, system=False)
        if by_schema and self.schemas and refuses_schema(refusal.complaints):
            return replace(self, schemas=False)
        if self.logprobs and "logprob" in told:
            return replace(self, logprobs=False)
        if self.limit in told and self.limit != "max_tokens":
            return replace(self, limit="max_tokens")
        sent = [name for name in DRAWN_BY if name not in self.refused]
        name = refused_field(refusal.complaints, sent)
        return None if name is None else replace(self, refused=self.refused | {name})

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is to be told of answers that are drawn without the refused fields."""
        unkept = () if self.schemas else (UNKEPT,)
        return (*unkept, *(REFUSES[name] for name in DRAWN_BY if name in self.refused))


def refuses_schema(complaints: Sequence[Complaint]) -> bool:
    """Whether a refusal is because of the schema that the reply is to be kept to."""
    named = (f"{complaint.field or ''} {complaint.said}" for complaint in complaints)
    return any(sign in said for said in named for sign in SCHEMA_SIGNS)


def refused_field(complaints: Sequence[Complaint], sent: Sequence[str]) -> str | None:
    """Return the first of the fields sent that a complaint says is not supported."""
    for complaint in complaints:
        said = complaint.said
        unsupported = any(sign in said for sign in NO_FIELD_SIGNS)
        if not unsupported or any(sign in said for sign in RANGE_SIGNS):
            continue
        named = [name for name in sent if _is_named(name, complaint)]
        if named:
            # Of two that exclude each other the temperature says more.
            return named[-1] if "both" in said else named[0]
    return None


def _is_named(name: str, complaint: Complaint) -> bool:
    if complaint.field is not None:
        return name == complaint.field
    return re.search(rf"(?<![a-z_]){name}(?![a-z_])", complaint.said) is not None


def refuses_system(told: str, messages: tuple[Message, ...]) -> bool:
    """Whether a refusal of a conversation is because of its system turn."""
    roles = [message.role for message in messages]
    usual = ["user", "assistant"] * len(roles)
    if roles[:1] != ["system"] or roles[1:] != usual[: len(roles) - 1]:
        return False
    return any(sign in told for sign in SYSTEM_SIGNS)


def overflows(told: str) -> bool:
    """Whether a refusal says that the prompt and its completion do not fit the context."""
    return any(sign in told for sign in OVERFLOW_SIGNS)
