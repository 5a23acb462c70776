"""What a machine that joins a run is told by its user: where, by what token, with which GPUs."""

import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...configs.section import ConfigError
from ..devices import Gpu, visible_gpus
from .join_token import TOKEN_VARIABLE, checked_token, read_token


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Where a machine joins, by what token, and what it offers there.

    `tls` is None for a connection that is not encrypted. It leaves after `idle_s` seconds without
    a model, after its first model if `once`, and with the run that it joined if `one_run`.
    """

    host: str
    port: int
    token: bytes
    name: str
    logs: Path
    gpus: Sequence[Gpu] = ()
    tls: ssl.SSLContext | None = None
    idle_s: float | None = None
    once: bool = False
    one_run: bool = False


def known_token(file: Path | None) -> bytes:
    """Return the token that a file holds, or the environment.

    Raises:
        ConfigError: if there is none, or it is too short to be one.
    """
    if file is not None:
        return read_token(file)
    token = os.environ.get(TOKEN_VARIABLE)
    if token is None:
        raise ConfigError(
            "a worker must know the run's token: name its file by --token-file, or set "
            f"{TOKEN_VARIABLE}; `lpfloop status` of the run shows the command"
        )
    return checked_token(token.strip().encode(), TOKEN_VARIABLE)


def lent_gpus(numbers: str | None) -> tuple[Gpu, ...]:
    """Return the GPUs of those numbers, such as `0,1`; by default all that are visible.

    Raises:
        ConfigError: for one that is not there, or is named twice.
    """
    visible = visible_gpus()
    if numbers is None:
        return visible
    named = [number.strip() for number in numbers.split(",")]
    wrong = [n for n in named if not (n.isdecimal() and int(n) < len(visible))]
    if wrong or len(set(named)) < len(named):
        told = f"GPU {wrong[0]} is not there" if wrong else "one is named twice"
        raise ConfigError(f"--gpus {numbers}: {told}; {len(visible)} are visible here")
    return tuple(visible[int(number)] for number in named)


def tls_by(authority: Path | None) -> ssl.SSLContext | None:
    """Return what checks a head's certificate by the one that vouches for it; None for none.

    Raises:
        ConfigError: if the file is no certificate.
    """
    if authority is None:
        return None
    try:
        context = ssl.create_default_context(cafile=authority)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"--tls-ca {authority}: it cannot be used: {error}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
