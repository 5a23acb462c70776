"""The token that a run shares with its workers, and what both ends derive from it; never sent.

A proof says that an end knows it. Seals say of each message that the other end sent it, in this
connection, this way and at this place: none can be made, changed, left out, sent again or turned
round by who does not know the token.
"""

import hmac
from pathlib import Path
from typing import Literal

from ...configs.section import ConfigError

TOKEN_VARIABLE = "LPFLOOP_JOIN_TOKEN"  # noqa: S105 -- a name
"""The variable that holds the token of a worker that names no file."""

LEAST_TOKEN = 16
SEAL_BYTES = 16

Role = Literal["head", "worker"]


def proof(token: bytes, role: Role, nonces: str) -> bytes:
    """Return what only who knows the token can say; each role says something else."""
    message = f"lpfloop {role} {nonces}".encode()
    return hmac.new(token, message, "sha256").hexdigest().encode()


class Sealer:
    """Seals what one role sends in a connection whose greeting was `greeting`, to the byte."""

    def __init__(self, token: bytes, role: Role, greeting: bytes) -> None:
        self._key = hmac.digest(token, f"lpfloop seals {role} ".encode() + greeting, "sha256")
        self._count = 0

    def seal(self, message: bytes) -> bytes:
        """Return the seal of the next message."""
        numbered = self._count.to_bytes(8, "big") + message
        self._count += 1
        return hmac.digest(self._key, numbered, "sha256")[:SEAL_BYTES]

    def is_sealed(self, message: bytes, seal: bytes) -> bool:
        """Whether the next message has its seal."""
        return hmac.compare_digest(self.seal(message), seal)


def read_token(path: Path) -> bytes:
    """Return the token that a file holds.

    Raises:
        ConfigError: if it cannot be read, or holds too little to be secret.
    """
    try:
        token = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"{path}: the token cannot be read: {error.strerror}") from error
    return checked_token(token, str(path))


def checked_token(token: bytes, source: str) -> bytes:
    """Return a token that is long enough.

    Raises:
        ConfigError: if it is not.
    """
    if len(token) < LEAST_TOKEN:
        raise ConfigError(
            f"{source}: a token has {LEAST_TOKEN} characters at least; make one by "
            '`python -c "import secrets; print(secrets.token_hex())"`'
        )
    return token
