"""Where a run listens for workers on other machines, and what lets them join it."""

import secrets
import shlex
import socket
import ssl
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ...configs.schema import ConfigError, EngineConfig, RewardConfig, RunConfig
from ...configs.section import WorkerPlaces
from ...policies.workers.join_listener import JoinListener
from ...policies.workers.join_protocol import split_address
from ...policies.workers.join_token import read_token
from ...policies.workers.machine_queue import Joined
from ...policies.workers.places import engine_berths, scorer_berths
from ...stores.durable import write_file
from ..recipes.roles import NeededRole
from .engine_stages import engine_section

TOKEN = "join.token"  # noqa: S105 -- a file's name
EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 -- compared with


def require_listening(config: RunConfig, roles: Sequence[NeededRole]) -> None:
    """Refuse models whose workers are to join where nobody listens.

    Raises:
        ConfigError: naming the setting that is missing.
    """
    for role in roles:
        engine = role.engine
        section = "reward" if engine is None else engine_section(role.name) or role.name
        require_address(config, section, config.reward.place if engine is None else engine.place)
    _require_files(config)


def require_address(config: RunConfig, section: str, place: WorkerPlaces) -> None:
    """Refuse a place that workers join, where nothing says where that is.

    Raises:
        ConfigError: naming the setting that is missing.
    """
    if "tcp" in (place if isinstance(place, dict) else (place,)) and not config.workers.listen:
        raise ConfigError(
            f"{section}.place={_said(place)}: workers.listen does not say where workers join; add "
            "--set workers.listen=0.0.0.0:7377"
        )


def require_replicas(config: RunConfig, path: str) -> None:
    """Refuse a number or place of replicas that a living run cannot have; `path` is the setting.

    Raises:
        ConfigError: naming the setting that cannot be followed.
    """
    *sections, name = path.split(".")
    if name not in ("replicas", "place"):
        return
    found: object = config
    for section in sections:
        found = getattr(found, section)
    section = ".".join(sections)
    if isinstance(found, EngineConfig):
        require_address(config, section, found.place)
        engine_berths(found, section)
    elif isinstance(found, RewardConfig):
        require_address(config, section, found.place)
        scorer_berths(found)


def listener_of(config: RunConfig, folder: Path) -> JoinListener | None:
    """Return what listens for workers of the run in `folder`; None if nothing is to.

    Raises:
        ConfigError: if it cannot listen there, or a file cannot be used.
    """
    settings = config.workers
    if settings.listen is None:
        return None
    return JoinListener(
        settings.listen,
        _token(config, folder),
        tls=_tls(config),
        patience_s=settings.patience_s,
    )


def join_command(config: RunConfig, folder: Path, address: str) -> str:
    """Return the command by which a worker joins the run in `folder`."""
    host, port = split_address(address)
    host = socket.gethostname() if host in EVERYWHERE else host
    shown = f"[{host}]" if ":" in host else host
    token = config.workers.token_file or str((folder / TOKEN).absolute())
    tls = " --tls-ca CA.pem" if config.workers.tls_certificate else ""
    return f"lpfloop worker --join {shown}:{port} --token-file {shlex.quote(token)}{tls}"


def told_joined(listener: JoinListener, command: str) -> Joined:
    """Return who has joined, with the command by which one more does."""
    return replace(listener.joined, command=command)


def _require_files(config: RunConfig) -> None:
    if config.workers.listen is not None:
        split_address(config.workers.listen)
        _tls(config)
        if config.workers.token_file is not None:
            read_token(Path(config.workers.token_file))


def _token(config: RunConfig, folder: Path) -> bytes:
    """Return the token that workers must know; the run's own is made once."""
    named = config.workers.token_file
    path = folder / TOKEN if named is None else Path(named)
    if named is None and not path.exists():
        write_file(path, f"{secrets.token_hex()}\n".encode(), "token")
    return read_token(path)


def _tls(config: RunConfig) -> ssl.SSLContext | None:
    certificate, key = config.workers.tls_certificate, config.workers.tls_key
    if certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        why = error.strerror or error
        raise ConfigError(
            f"workers.tls_certificate={certificate}: it cannot be used with {key}: {why}"
        ) from error
    return context


def _said(place: WorkerPlaces) -> str:
    if isinstance(place, str):
        return place
    return "{" + ", ".join(f"{name}: {count}" for name, count in place.items()) + "}"
