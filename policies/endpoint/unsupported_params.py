"""Parameters of a request that an endpoint does not support, learned from its refusals.

A parameter is left out from then on only if a refusal names it and reports that it is not
supported. If a value is out of range, the request fails, because the user can correct it.
"""

import re
from collections.abc import Collection, Mapping, Sequence

from ...stores.records import Message
from .faults import Complaint, RefusedError

SYSTEM, SCHEMA, LOGPROBS, LIMIT = "system", "response_format", "logprobs", "max_completion_tokens"
SAMPLED_BY = ("temperature", "top_p", "seed")
"""Parameters that reasoning models and some hosted ones refuse; the server's default applies."""

REMARKS: Mapping[str, str] = {
    SCHEMA: "the endpoint refuses response_format: judges are asked for an object without a schema",
    "temperature": "the endpoint refuses temperature: its answers are drawn at its own",
    "top_p": "the endpoint refuses top_p: its answers are drawn with its own",
    "seed": "the endpoint refuses seed: asked again, it may answer otherwise",
}
"""The run's notes on answers that are drawn without a parameter."""
FOLDED = "the endpoint refuses system turns: each became the beginning of the user's first turn"

# Phrases of servers, in lower case.
OVERFLOW_SIGNS = (
    "context length",
    "context_length",
    "maximum context",
    "max_model_len",
    "too long",
)
SYSTEM_SIGNS = (
    *("system role", "system message", "system prompt", "role 'system'", 'role "system"'),
    *("role: system", "role system", "roles must alternate", "only user and assistant roles"),
)
SCHEMA_SIGNS = ("response_format", "json_schema", "json schema", "structured output")
UNSUPPORTED_SIGNS = (
    *("support", "unrecognized", "unknown", "unexpected", "not permitted", "not allowed"),
    *("not accepted", "not available", "forbidden", "deprecated", "cannot both be"),
    *("may only be set", "only 1 is allowed"),
)
RANGE_SIGNS = ("between", "range", "less than", "greater than", "at most", "at least", "<=", ">=")


def newly_unsupported(
    refusal: RefusedError,
    known: Collection[str],
    messages: tuple[Message, ...] = (),
    *,
    by_schema: bool = False,
) -> str | None:
    """Return the parameter that a refusal names, except those `known`; None if it names none.

    `messages` are the refused conversation; a leading system turn counts as the parameter
    "system". `by_schema`: the reply was to follow a JSON schema.
    """
    text = refusal.text
    if SYSTEM not in known and _refuses_system(text, messages):
        return SYSTEM
    if by_schema and SCHEMA not in known and _refuses_schema(refusal.complaints):
        return SCHEMA
    if LOGPROBS not in known and "logprob" in text:
        return LOGPROBS
    if LIMIT not in known and LIMIT in text:
        return LIMIT
    return _refused_field(refusal.complaints, [name for name in SAMPLED_BY if name not in known])


def remarks(unsupported: Collection[str]) -> tuple[str, ...]:
    """Return the remarks on answers that are drawn without these parameters."""
    return tuple(remark for name, remark in REMARKS.items() if name in unsupported)


def overflows(text: str) -> bool:
    """Whether a refusal reports that the prompt and its completion do not fit the context."""
    return any(sign in text for sign in OVERFLOW_SIGNS)


def _refuses_system(text: str, messages: tuple[Message, ...]) -> bool:
    """Whether a conversation was refused because of its system turn."""
    roles = [message.role for message in messages]
    usual = ["user", "assistant"] * len(roles)
    if roles[:1] != ["system"] or roles[1:] != usual[: len(roles) - 1]:
        return False
    return any(sign in text for sign in SYSTEM_SIGNS)


def _refuses_schema(complaints: Sequence[Complaint]) -> bool:
    named = (f"{complaint.field or ''} {complaint.message}" for complaint in complaints)
    return any(sign in text for text in named for sign in SCHEMA_SIGNS)


def _refused_field(complaints: Sequence[Complaint], sent: Sequence[str]) -> str | None:
    """Return the first of the sent fields that a complaint reports as unsupported."""
    for complaint in complaints:
        field = complaint.message
        unsupported = any(sign in field for sign in UNSUPPORTED_SIGNS)
        if not unsupported or any(sign in field for sign in RANGE_SIGNS):
            continue
        named = [name for name in sent if _is_named(name, complaint)]
        if named:
            # Of two parameters that exclude each other, temperature matters more.
            return named[-1] if "both" in field else named[0]
    return None


def _is_named(name: str, complaint: Complaint) -> bool:
    if complaint.field is not None:
        return name == complaint.field
    return re.search(rf"(?<![a-z_]){name}(?![a-z_])", complaint.message) is not None
