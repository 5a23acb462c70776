"""The user's secrets, and texts with them blacked out.

There are two kinds. Keys are sent to endpoints: `api_key` of the configuration and
LPFLOOP_API_KEY. They are blacked out in everything that is stored or shown, rows included: a server
may repeat a key in its answer. Other secrets are the values of environment variables with KEY,
TOKEN, SECRET or PASSWORD in their name. They are blacked out in messages, logs and the journal, but
not in rows: a password such as "postgres" would remove words from texts without any secret.

A secret is blacked out as it is, as base64 (at any offset, in both alphabets), percent-encoded and
as in JSON; and in messages the user's part of any URL.
"""

import base64
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast
from urllib.parse import quote, quote_plus

if TYPE_CHECKING:
    from .section import Section

API_KEY = "LPFLOOP_API_KEY"
"""The environment variable with the key of endpoints without a configured key."""
WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD")
SHORTEST = 8
"""Shorter values are not secrets, and would black out half of every text."""
BLACKED = "[hidden]"
_ENDING = re.compile(rf"({'|'.join(WORDS)})(_?[0-9]+)?$", re.IGNORECASE)
_USER = re.compile(r"(?<=://)[^/\s@]{1,256}@")

T = TypeVar("T")


class Blackout:
    """A set of secrets, and one pattern for all their forms."""

    def __init__(self) -> None:
        self._forms: list[str] = []
        self._pattern: re.Pattern[str] | None = None

    @property
    def empty(self) -> bool:
        """Whether the set is empty."""
        return self._pattern is None

    def add(self, secret: str) -> None:
        """Black out a secret from now on, in all its forms, unless it is too short to be one."""
        if len(secret) >= SHORTEST and secret not in self._forms:
            # Longest first, because one form may begin with another.
            forms = {*self._forms, *_forms(secret)}
            self._forms = sorted(forms, key=lambda form: (-len(form), form))
            self._pattern = re.compile("|".join(map(re.escape, self._forms)))

    def over(self, text: str) -> str:
        """Return a text without the secrets."""
        # A search for each form is three times as fast as a search for the pattern.
        if self._pattern is None or not any(form in text for form in self._forms):
            return text
        return self._pattern.sub(BLACKED, text)


_keys, _every = Blackout(), Blackout()


def hide(secret: str) -> None:
    """Black out a secret in every message from now on."""
    _every.add(secret)


def hide_key(key: str) -> None:
    """Black out a key in everything that is stored or shown from now on."""
    _keys.add(key)
    _every.add(key)


def hide_own_key(environment: Mapping[str, str] = os.environ) -> None:
    """Black out the environment's key of endpoints."""
    hide_key(environment.get(API_KEY, "").strip())


def hide_environment() -> None:
    """Black out the values of environment variables whose names contain words for secrets.

    A number (MAX_TOKENS), and a path (KEY_FILE), is a secret only if its name ends with such a
    word, and the file does not exist.
    """
    hide_own_key()
    for name, value in os.environ.items():
        plain = value.startswith("/") or value.isdecimal()
        ends = _ENDING.search(name) is not None and not _is_path(value)
        if any(word in name.upper() for word in WORDS) and (ends or not plain):
            hide(value)


def hide_secrets_of(config: "Section") -> None:
    """Black out every key in a configuration, or in a part of one."""
    # Each command hides the environment's key, and most are without a configuration.
    from pydantic import SecretStr

    from .section import leaves

    for _, value, _ in leaves(config):
        if isinstance(value, SecretStr):
            hide_key(value.get_secret_value().strip())


def redact(text: str) -> str:
    """Return a message without any known secret, and without the user's part of its URLs."""
    return _USER.sub("", _every.over(text))


def without_keys(text: str) -> str:
    """Return a text of a row without any known key."""
    return _keys.over(text)


def knows_keys() -> bool:
    """Whether any key is registered, so that rows have to be searched."""
    return not _keys.empty


def row_without_keys(value: T) -> T:
    """Return a row, or a value of one, without any known key in its texts."""
    return cast("T", _clean(value)) if knows_keys() else value


def _clean(value: object) -> object:
    match value:
        case str():
            return _keys.over(value)
        case list():
            return [_clean(item) for item in cast("list[object]", value)]
        case dict():
            fields = cast("dict[str, object]", value)
            return {name: _clean(item) for name, item in fields.items()}
        case _:
            return value


def _is_path(value: str) -> bool:
    try:
        return value.startswith("/") and Path(value).exists()
    except OSError:
        return False


def _forms(secret: str) -> Iterable[str]:
    """Yield the secret as it is, and in its encoded forms."""
    yield secret
    yield json.dumps(secret)[1:-1]
    yield quote(secret, safe="", errors="surrogateescape")
    yield quote_plus(secret, errors="surrogateescape")
    data = secret.encode("utf-8", errors="surrogateescape")
    for offset in range(3):
        # The first characters mix with the bytes before, the last with the bytes after.
        first = (offset * 8 + 5) // 6
        last = (offset + len(data)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(b"\0" * offset + data).decode()[first:last]
