"""Secrets of this process, and texts with them blacked out.

What is hidden: the keys that the configuration holds, and what the environment holds under a name
with KEY, TOKEN, SECRET or PASSWORD; as they are, as base64 (at any offset, in both alphabets) and
percent-encoded. Also the user's part of any URL. Blacked out is what leaves the process by a way
that nobody would search for secrets: messages, logs, the journal.
"""

import base64
import os
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

from pydantic import SecretStr

from ...configs.section import Section

WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD")
SHORTEST = 6
"""Shorter values are no secrets, and would black out half of every text."""
BLACKED = "[hidden]"
_USER = re.compile(r"(?<=://)[^/\s@]{1,256}@")
_secrets = set[str]()


def hide(secret: str) -> None:
    """Black out `secret` in every text from now on, in all its forms."""
    if len(secret) >= SHORTEST:
        _secrets.update(_forms(secret))


def hide_environment() -> None:
    """Black out what the environment holds under names that speak of secrets."""
    for name, value in os.environ.items():
        named = any(word in name.upper() for word in WORDS)
        if named and not value.startswith("/") and not value.isdecimal():
            hide(value)


def hide_secrets_of(config: Section) -> None:
    """Black out every secret that a configuration, or a part of one, holds."""
    for secret in _secrets_in(config):
        hide(secret)


def redacted(text: str) -> str:
    """Return `text` without any known secret, and without the user's part of its URLs."""
    for secret in sorted(_secrets, key=len, reverse=True):
        text = text.replace(secret, BLACKED)
    return _USER.sub("", text)


def _secrets_in(section: Section) -> Iterator[str]:
    for name in type(section).model_fields:
        value: object = getattr(section, name)
        if isinstance(value, SecretStr):
            yield value.get_secret_value()
        elif isinstance(value, Section):
            yield from _secrets_in(value)


def _forms(secret: str) -> Iterable[str]:
    """Give the secret as it is, and as others write it down."""
    yield secret
    yield quote(secret, safe="", errors="surrogateescape")
    yield quote_plus(secret, errors="surrogateescape")
    data = secret.encode("utf-8", errors="surrogateescape")
    for offset in range(3):
        # The first characters mix with what stands before, the last with what follows.
        first = (offset * 8 + 5) // 6
        last = (offset + len(data)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(b"\0" * offset + data).decode()[first:last]
