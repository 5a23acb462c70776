"""What both ends of a worker's TCP connection agree on: parcels, limits, proofs of the token.

The head is the process that works on a run; a worker joins it. A parcel is a kind, the number of a
session, a length and a body. Control parcels hold JSON; relayed ones a frame of `wire` as it is. A
session is one child process at the worker: what comes for one that is over is dropped.

Both ends prove by HMAC over each other's nonces that they know the token, which itself is never
sent. Each parcel after that ends in a seal by keys of this connection, one for each way, so that a
worker runs nothing but what its head sent. Nothing is encrypted, except by TLS.
"""

import hmac
import json
import secrets
import struct
from asyncio import StreamReader, StreamWriter, wait_for
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from ...configs.section import ConfigError
from ..devices import installed
from .join_token import SEAL_BYTES, Role, Sealer, proof

PROTOCOL = 2
"""The version of parcels and frames: both ends must have the same."""

CONTROL, RELAY = 1, 2
HEADER = struct.Struct(">BII")
NONCE_BYTES = 32

HELLO_BYTES = 1 << 14
"""The longest parcel of somebody who has not proved anything."""
PARCEL_BYTES = 1 << 28
READ_BYTES = 1 << 20
HELLO_S = 10.0
"""Seconds in which a newcomer must have proved that it knows the token."""


class ProtocolError(Exception):
    """The other end sent what nobody sends who speaks this protocol."""


class JoinRefusedError(ConfigError):
    """The two ends do not fit together, and will not by trying again; the message says why."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """One message: `session` is 0 where it is about the connection."""

    kind: int
    session: int
    body: bytes

    def encoded(self) -> bytes:
        """Return the bytes of the parcel."""
        return HEADER.pack(self.kind, self.session, len(self.body)) + self.body

    def said(self) -> dict[str, Any]:
        """Return what a control parcel says.

        Raises:
            ProtocolError: if it is none.
        """
        try:
            said = json.loads(self.body) if self.kind == CONTROL else None
        except ValueError as error:
            raise ProtocolError("a message that is no JSON") from error
        if not isinstance(said, dict) or not isinstance(cast("Any", said).get("op"), str):
            raise ProtocolError("a message that says nothing")
        return cast("dict[str, Any]", said)


def control(op: str, session: int = 0, **fields: Any) -> Parcel:
    """Return a control parcel."""
    return Parcel(CONTROL, session, json.dumps({"op": op, **fields}).encode())


class ParcelDecoder:
    """Splits a stream of bytes into parcels; one that is cut off is never given."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._sealer: Sealer | None = None
        self._longest = HELLO_BYTES

    def admit(self, sealer: Sealer) -> None:
        """Let parcels be long from now on, and sealed."""
        self._sealer = sealer
        self._longest = PARCEL_BYTES

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self._buffer += data

    def parcel(self) -> Parcel | None:
        """Return the next parcel; None if it is not complete.

        Raises:
            ProtocolError: for what is no parcel, is too long, or has not its seal.
        """
        if len(self._buffer) < HEADER.size:
            return None
        kind, session, length = HEADER.unpack_from(self._buffer)
        if kind not in (CONTROL, RELAY):
            raise ProtocolError("bytes that are no message")
        if length > self._longest:
            raise ProtocolError(f"a message of {length:,} bytes")
        end = HEADER.size + length
        sealed_end = end if self._sealer is None else end + SEAL_BYTES
        if len(self._buffer) < sealed_end:
            return None
        with memoryview(self._buffer) as view:
            message, seal = bytes(view[:end]), bytes(view[end:sealed_end])
        del self._buffer[:sealed_end]
        if self._sealer is not None and not self._sealer.is_sealed(message, seal):
            raise ProtocolError(
                "a message without its seal: something between both ends changes what they send"
            )
        return Parcel(kind, session, message[HEADER.size :])


class JoinLine:
    """One end of a connection: sends parcels, and reads them in order."""

    def __init__(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = ParcelDecoder()
        self._greeting = bytearray()
        self._sealer: Sealer | None = None

    def send(self, parcel: Parcel) -> None:
        """Send a parcel; nothing waits until it has left."""
        if not self._writer.is_closing():
            message = parcel.encoded()
            seal = b"" if self._sealer is None else self._sealer.seal(message)
            self._writer.writelines((message, seal))

    async def receive(self, silence_s: float) -> Parcel:
        """Return the next parcel.

        Raises:
            ConnectionError: if the other end is gone.
            TimeoutError: if nothing at all came for `silence_s` seconds.
            ProtocolError: for bytes that are no parcel of the other end's.
        """
        while (parcel := self._decoder.parcel()) is None:
            data = await wait_for(self._reader.read(READ_BYTES), silence_s)
            if not data:
                raise ConnectionResetError("the other end closed the connection")
            self._decoder.feed(data)
        return parcel

    async def say(self, op: str, **fields: Any) -> None:
        """Send a message of the greeting."""
        said = control(op, **fields)
        self._greeting += said.encoded()
        self.send(said)
        await self._writer.drain()

    async def hear(self, op: str) -> Mapping[str, Any]:
        """Return the message of the greeting that is due.

        Raises:
            JoinRefusedError: if the other end says that it refuses.
            ProtocolError: if it says something else.
        """
        parcel = await self.receive(HELLO_S)
        self._greeting += parcel.encoded()
        said = parcel.said()
        if said["op"] == "refused":
            raise JoinRefusedError(str(said.get("why"))[:1000])
        if said["op"] != op:
            raise ProtocolError(f"{said['op'][:40]!r} where {op!r} is due")
        return said

    def admit(self, token: bytes, *, own: Role, other: Role) -> None:
        """Seal parcels from now on, which may be long: both ends have proved themselves.

        The keys depend on all that was said, so who changed any of it is found out, too.
        """
        greeting = bytes(self._greeting)
        self._sealer = Sealer(token, own, greeting)
        self._decoder.admit(Sealer(token, other, greeting))

    def close(self) -> None:
        """Close the connection; what was sent still leaves."""
        self._writer.close()

    def abort(self) -> None:
        """Drop the connection."""
        self._writer.transport.abort()


@dataclass(frozen=True, slots=True, kw_only=True)
class Newcomer:
    """A worker that asks to join: who it is, and for how many models it has room at once.

    `gpus` are the GPUs that it offers; on a CPU it is given one model at a time.
    """

    name: str
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """How often both ends send something, and after what silence the other counts as lost."""

    beat_s: float = 5.0
    silence_s: float = 25.0


async def admitted(line: JoinLine, token: bytes, pulse: Heartbeat) -> Newcomer:
    """Greet who connected to the head; return who it is, once it has proved to know the token.

    Raises:
        JoinRefusedError: if it has another version or token; it has been told.
        ProtocolError, ConnectionError, TimeoutError: if it is no worker at all.
    """
    hello = await line.hear("join")
    ours = _versions()
    theirs = {name: hello.get(name) for name in ours}
    if theirs != ours:
        why = _unlike(head=ours, worker=theirs)
        await line.say("refused", why=why)
        raise JoinRefusedError(why)
    nonce = secrets.token_hex(NONCE_BYTES)
    nonces = str(hello.get("nonce")) + nonce
    await line.say("challenge", nonce=nonce)
    answer = await line.hear("answer")
    if not hmac.compare_digest(str(answer.get("proof")).encode(), proof(token, "worker", nonces)):
        why = "the token is another one than the head's"
        await line.say("refused", why=why)
        raise JoinRefusedError(why)
    beat = {"beat_s": pulse.beat_s, "silence_s": pulse.silence_s}
    await line.say("welcome", proof=proof(token, "head", nonces).decode(), **beat)
    line.admit(token, own="head", other="worker")
    gpus = hello.get("gpus")
    if not isinstance(gpus, int) or gpus < 0:
        raise ProtocolError("a worker that does not say how many GPUs it has")
    return Newcomer(name=str(hello.get("name"))[:200], gpus=gpus)


async def joined(line: JoinLine, token: bytes, who: Newcomer) -> Heartbeat:
    """Greet the head; return how often it wants to hear of its worker.

    Raises:
        JoinRefusedError: if versions or tokens differ.
        ProtocolError, ConnectionError, TimeoutError: if who listens there is no head.
    """
    own = secrets.token_hex(NONCE_BYTES)
    await line.say("join", nonce=own, name=who.name, gpus=who.gpus, **_versions())
    nonces = own + str((await line.hear("challenge")).get("nonce"))
    await line.say("answer", proof=proof(token, "worker", nonces).decode())
    welcome = await line.hear("welcome")
    if not hmac.compare_digest(str(welcome.get("proof")).encode(), proof(token, "head", nonces)):
        raise JoinRefusedError("who listens there does not know the token")
    line.admit(token, own="worker", other="head")
    return Heartbeat(beat_s=float(welcome["beat_s"]), silence_s=float(welcome["silence_s"]))


def _versions() -> dict[str, Any]:
    return {"lpfloop": installed("lpfloop"), "protocol": PROTOCOL}


def _unlike(*, head: Mapping[str, Any], worker: Mapping[str, Any]) -> str:
    def told(versions: Mapping[str, Any]) -> str:
        return f"lpfloop {versions['lpfloop']!s:.40} (protocol {versions['protocol']!s:.10})"

    return (
        f"the head runs {told(head)}, the worker {told(worker)}: install the same version in "
        "both places"
    )


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`; an IPv6 host stands in brackets.

    Raises:
        ConfigError: if it is none.
    """
    host, _, port = address.rpartition(":")
    if not (host and port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        raise ConfigError(f"{address}: an address is HOST:PORT, such as 10.0.0.7:7377")
    return host.removeprefix("[").removesuffix("]"), int(port)
