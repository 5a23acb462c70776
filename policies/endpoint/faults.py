"""The meaning of a failed attempt: retry later, give up this request alone, or stop the engine.

A server's text is shown shortened, on one line, and without the key even if the server repeats
it.
"""

import base64
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Literal, cast
from urllib.parse import quote

import aiohttp
from aiohttp.http_exceptions import ContentEncodingError

from ..engines.engine import EngineError
from .transport import ERROR_BYTES, AnswerTooLargeError, StatusError, UnreadableReplyError

KEY_VARIABLE = "LPFLOOP_API_KEY"
HIDDEN = "[hidden]"
SHOWN = 300

LONGEST_PAUSE_S = 3600.0
"""The longest pause that a Retry-After can set: longer values may be errors, and one request an
hour harms no server.
"""

OWN_STATUSES = frozenset({400, 413, 422})
"""Statuses that concern one request, not the endpoint."""
KEY_STATUSES = frozenset({401, 407})
"""Statuses that concern every request."""
BUSY_STATUSES = frozenset({408, 409, 425, 429, 503})
"""Statuses of a server that may answer later."""

ATTEMPT_ERRORS = (
    StatusError,
    aiohttp.ClientError,
    AnswerTooLargeError,
    OSError,
    LookupError,
    OverflowError,
    ValueError,
    TypeError,
    AttributeError,
    RecursionError,
)
"""The errors of an attempt: transport, status, deadline, or a reply that is malformed."""


GARBLED = "the answer is not that of an OpenAI-compatible endpoint"
MESSAGE_FIELDS = ("error", "message", "msg", "detail")
"""The fields of a server's error message, either in an object in `error` or at the top."""


FaultKind = Literal["unreachable", "lost", "slow", "unreadable", "busy", "crowded"]
"""The kind of a failure: no connection; a lost connection or a status 5xx; no reply in time; a
reply that is not a chat completion; a status to retry later; too many requests (429).
"""


class TemporaryError(Exception):
    """The same request may succeed later.

    `pause_s` is the endpoint's requested pause for all clients, or None.
    """

    def __init__(self, sentence: str, *, kind: FaultKind, pause_s: float | None = None) -> None:
        super().__init__(sentence)
        self.kind: FaultKind = kind
        self.pause_s = pause_s


@dataclass(frozen=True, slots=True)
class Complaint:
    """A server's description of an error in a request, in lower case, and the field, if named."""

    message: str
    field: str | None = None


class RefusedError(Exception):
    """This request will never be answered; others may be.

    `text` is the server's whole message, in lower case, and may repeat the request; `complaints`
    are the errors in it.
    """

    def __init__(self, sentence: str, *, text: str, complaints: Sequence[Complaint] = ()) -> None:
        super().__init__(sentence)
        self.text = text
        self.complaints = tuple(complaints)


class DeniedError(EngineError):
    """A refusal because of the key, the account or the address; or of this request alone.

    Servers use the same statuses for both, so another request has to show which it is. `reason`
    is the server's sentence.
    """

    code = "LPF-304"

    def __init__(self, sentence: str, *, reason: str) -> None:
        super().__init__(sentence)
        self.reason = reason


def fault_of(
    url: str, error: Exception, key: str | None
) -> TemporaryError | RefusedError | EngineError:
    """Classify the failure of one attempt at `url`."""
    if isinstance(error, StatusError):
        return _status(url, error, key)
    if isinstance(error, TimeoutError):
        return TemporaryError("the endpoint did not answer in time", kind="slow")
    if isinstance(error, aiohttp.ClientError | OSError):
        if isinstance(error.__cause__, ContentEncodingError):
            return TemporaryError(GARBLED, kind="unreadable")
        # aiohttp's message about a failed connection also mentions its own settings.
        refused = isinstance(error, aiohttp.ClientConnectorError)
        cause = (error.__cause__ or error) if refused else error
        why = f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__
        return TemporaryError(
            f"the endpoint cannot be reached ({shorten(why, key)})",
            kind="unreachable" if refused else "lost",
        )
    if isinstance(error, AnswerTooLargeError):
        return RefusedError("the answer is larger than any can be", text="")
    received = error.received if isinstance(error, UnreadableReplyError) else ""
    cause = shorten(server_message(received) or _text(received), key)
    sentence = f"{GARBLED}: {cause!r}" if cause else GARBLED
    return TemporaryError(sentence, kind="unreadable")


def server_message(body: object) -> str:
    """Return the server's message in the body of an error; empty without one."""
    if isinstance(body, str):
        return body.strip()
    if not isinstance(body, dict):
        return ""
    fields = cast("dict[str, object]", body)
    choices = fields.get("choices")
    first = cast("list[object]", choices)[:1] if isinstance(choices, list) else []
    # Only the reason why one answer broke off: its other texts are the model's.
    of_choice = [cast("dict[str, object]", c).get("error") for c in first if isinstance(c, dict)]
    found: list[object] = [*(fields.get(name) for name in MESSAGE_FIELDS), *of_choice]
    messages = (server_message(one) for one in found)
    return next((message for message in messages if message), "")


def _text(body: object) -> str:
    return body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)[:ERROR_BYTES]


def _status(
    url: str, error: StatusError, key: str | None
) -> TemporaryError | RefusedError | EngineError:
    status, text = error.status, error.content.decode("utf-8", "replace").strip()
    body = _error_fields(text)
    message = server_message(body) or text
    sentence = f"HTTP {status}: {shorten(message, key)}" if message else f"HTTP {status}"
    if "insufficient_quota" in (body.get("code"), body.get("type")):
        return EngineError(f"{url}: the quota of this API key is spent (HTTP {status})")
    if status in OWN_STATUSES:
        lowered = f"{text} {message}".lower()
        return RefusedError(sentence, text=lowered, complaints=_complaints(body, text))
    if status in BUSY_STATUSES or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        pause_s = requested_pause(error.headers, time.time())
        return TemporaryError(sentence, kind=_temporary_kind(status), pause_s=pause_s)
    final = f"{url}: {_final(status, sentence)}"
    if status < HTTPStatus.BAD_REQUEST or status in KEY_STATUSES:
        return EngineError(final)
    return DeniedError(final, reason=sentence)


def _error_fields(text: str) -> dict[str, object]:
    """Return the object in `error`, or the whole body; empty if the body is not an object."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):  # a page, or nothing
        return {}
    if not isinstance(body, dict):
        return {}
    fields = cast("dict[str, object]", body)
    error = fields.get("error", fields)
    return cast("dict[str, object]", error) if isinstance(error, dict) else {"message": error}


def _temporary_kind(status: int) -> FaultKind:
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return "crowded"
    return "busy" if status in BUSY_STATUSES else "lost"


def _complaints(fields: Mapping[str, object], text: str) -> list[Complaint]:
    """Return a server's complaints: one, or one for each wrong field."""
    if not fields:
        return [Complaint(text.lower())]
    # Servers that validate request bodies list the errors, as FastAPI does.
    details = fields.get("detail")
    found = cast("list[object]", details) if isinstance(details, list) else [fields]
    return [_complaint(cast("dict[str, object]", one)) for one in found if isinstance(one, dict)]


def _complaint(fields: Mapping[str, object]) -> Complaint:
    texts = [fields.get(name) for name in ("code", "type", "message", "msg")]
    lowered = " ".join(text for text in texts if isinstance(text, str)).lower()
    path = fields.get("loc")
    field = cast("list[object]", path)[-1] if isinstance(path, list) and path else None
    field = field or fields.get("param")
    return Complaint(lowered, field if isinstance(field, str) and field else None)


def _final(status: int, sentence: str) -> str:
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return f"the endpoint refuses the API key ({sentence}); set {KEY_VARIABLE}"
    if status == HTTPStatus.NOT_FOUND:
        return f"not found ({sentence}); the address usually ends in /v1"
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        return (
            f"the endpoint redirects (HTTP {status}), which is not followed; give its new address"
        )
    return f"the endpoint refuses ({sentence})"


def requested_pause(headers: Mapping[str, str], now: float) -> float | None:
    """Return a Retry-After's seconds, at most an hour; None if it is less than one second.

    A date is compared with the server's own clock if the reply has it, else with `now` (seconds
    since 1970).
    """
    value = headers.get("retry-after", "")
    try:
        seconds = float(value)
    except ValueError:
        then = _moment(value)
        here = _moment(headers.get("date", ""))
        seconds = math.nan if then is None else then - (now if here is None else here)
    # Written so that NaN fails, too.
    return min(seconds, LONGEST_PAUSE_S) if seconds >= 1 else None


def _moment(date: str) -> float | None:
    try:
        moment = parsedate_to_datetime(date)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def shorten(text: str, key: str | None) -> str:
    """Return the beginning of a foreign text on one line, without the key in any usual form."""
    if key:
        plain = key.encode()
        forms = {key, quote(key, safe=""), base64.b64encode(plain).decode().rstrip("=")}
        for form in sorted(forms, key=len, reverse=True):
            text = text.replace(form, HIDDEN)
    printable = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(printable.split())[:SHOWN]
