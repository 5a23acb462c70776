"""Head and worker take nothing from each other that was changed on its way.

Both are real ends of connections, with somebody between them who does not know the token.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from lpfloop.policies.workers.join_protocol import (
    RELAY,
    Heartbeat,
    JoinLine,
    JoinRefusedError,
    Newcomer,
    Parcel,
    ProtocolError,
    admitted,
    control,
    joined,
)
from lpfloop.policies.workers.join_token import SEAL_BYTES

TOKEN = b"a token of a test, long enough"
WHO = Newcomer(name="m", gpus=2)
SAID = (control("begin", 1, gpus=1), Parcel(RELAY, 1, b"what to load"), control("kill", 1))
Bytes = list[bytes]


class Relay:
    """What is between both ends: passes on what they say, until it is told to keep it."""

    def __init__(self, up: Callable[[bytes], bytes]) -> None:
        self._up = up
        self._loop = asyncio.get_running_loop()
        self._keeps = False
        self._kept = {"up": bytearray(), "down": bytearray()}
        self._more = asyncio.Event()
        self.head, self._at_head = socket.socketpair()
        self.worker, self._at_worker = socket.socketpair()
        for end in (self._at_head, self._at_worker):
            end.setblocking(False)

    async def run(self) -> None:
        """Pass on what comes, for as long as it comes."""
        up, down = self._at_worker, self._at_head
        await asyncio.gather(self._pass("up", up, down), self._pass("down", down, up))

    async def _pass(self, way: str, source: socket.socket, target: socket.socket) -> None:
        while data := await self._loop.sock_recv(source, 1 << 16):
            if self._keeps:
                self._kept[way] += data
                self._more.set()
            else:
                await self._loop.sock_sendall(target, self._up(data) if way == "up" else data)

    def keep(self) -> None:
        """Pass on nothing more."""
        self._keeps = True

    async def kept(self, way: str, parcels: Sequence[Parcel]) -> Bytes:
        """Return what was kept of parcels that one end sent, each with its seal."""
        sizes = [len(parcel.encoded()) + SEAL_BYTES for parcel in parcels]
        kept = self._kept[way]
        while len(kept) < sum(sizes):
            self._more.clear()
            await self._more.wait()
        ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
        return [bytes(kept[end - size : end]) for size, end in zip(sizes, ends, strict=True)]

    async def tell_worker(self, said: Bytes) -> None:
        """Say something in the head's place."""
        await self._loop.sock_sendall(self._at_worker, b"".join(said))

    def close(self) -> None:
        """Let both ends go."""
        for end in (self._at_head, self._at_worker):
            end.close()


@asynccontextmanager
async def connected(
    up: Callable[[bytes], bytes] = bytes,
) -> AsyncIterator[tuple[Relay, JoinLine, JoinLine]]:
    """Open a line between a head and a worker, which have not greeted each other."""
    relay = Relay(up)
    passing = asyncio.create_task(relay.run())
    ends = [await asyncio.open_connection(sock=end) for end in (relay.head, relay.worker)]
    head, worker = (JoinLine(*end) for end in ends)
    try:
        yield relay, head, worker
    finally:
        passing.cancel()
        await asyncio.gather(passing, return_exceptions=True)
        relay.close()
        for _, writer in ends:
            writer.close()
            await writer.wait_closed()


async def greet(head: JoinLine, worker: JoinLine) -> None:
    """Let both ends prove to each other who they are."""
    await asyncio.gather(admitted(head, TOKEN, Heartbeat()), joined(worker, TOKEN, WHO))


def heard(change: Callable[[Bytes], Bytes], count: int) -> list[Parcel]:
    """Return the first parcels that a worker hears, if a relay changes what the head says."""

    async def hear() -> list[Parcel]:
        async with connected() as (relay, head, worker):
            await greet(head, worker)
            relay.keep()
            for parcel in SAID:
                head.send(parcel)
            await relay.tell_worker(change(await relay.kept("down", SAID)))
            return [await worker.receive(60) for _ in range(count)]

    return asyncio.run(hear())


def test_what_nobody_changes_arrives_in_its_order() -> None:
    assert heard(lambda said: said, 3) == list(SAID)


FORGED = control("begin", 1, gpus=1).encoded()
CHANGES: dict[str, tuple[Callable[[Bytes], Bytes], int]] = {
    "another word": (lambda said: [said[0].replace(b"begin", b"bogus")], 0),
    "another session": (lambda said: [said[0][:1] + b"\0\0\0\x09" + said[0][5:]], 0),
    "another kind": (lambda said: [b"\x02" + said[0][1:]], 0),
    "another seal": (lambda said: [said[0][:-1] + bytes([said[0][-1] ^ 1])], 0),
    "left out": (lambda said: said[1:], 0),
    "exchanged": (lambda said: [said[1], said[0]], 0),
    "said again": (lambda said: [said[0], said[0]], 1),
    "put in": (lambda said: [said[0], FORGED, *said[1:]], 1),
    "put in with a seal": (lambda said: [FORGED + bytes(SEAL_BYTES)], 0),
}
WRONG = "a message without its seal: something between both ends changes"


@pytest.mark.parametrize("name", CHANGES)
def test_what_was_changed_is_not_taken(name: str) -> None:
    change, before = CHANGES[name]
    assert heard(change, before) == list(SAID[:before])
    with pytest.raises(ProtocolError, match=WRONG):
        heard(change, before + 1)


def test_what_a_worker_said_is_not_taken_for_its_heads() -> None:
    async def hear() -> Parcel:
        async with connected() as (relay, head, worker):
            await greet(head, worker)
            relay.keep()
            worker.send(control("beat"))
            await relay.tell_worker(await relay.kept("up", [control("beat")]))
            return await worker.receive(60)

    with pytest.raises(ProtocolError, match=WRONG):
        asyncio.run(hear())


def test_who_changes_the_greeting_is_found_out_by_what_follows() -> None:
    async def hear() -> Parcel:
        more = lambda data: data.replace(b'"gpus": 2', b'"gpus": 8')  # noqa: E731
        async with connected(up=more) as (_, head, worker):
            await greet(head, worker)
            head.send(SAID[0])
            return await worker.receive(60)

    with pytest.raises(ProtocolError, match=WRONG):
        asyncio.run(hear())


def test_no_seal_is_that_of_another_connection() -> None:
    async def hear() -> Parcel:
        async with connected() as one, connected() as other:
            for _, head, worker in (one, other):
                await greet(head, worker)
            one[0].keep()
            one[1].send(SAID[0])
            await other[0].tell_worker(await one[0].kept("down", SAID[:1]))
            return await other[2].receive(60)

    with pytest.raises(ProtocolError, match=WRONG):
        asyncio.run(hear())


def test_another_token_is_refused_to_both() -> None:
    async def meet() -> list[object]:
        async with connected() as (_, head, worker):
            return await asyncio.gather(
                admitted(head, TOKEN, Heartbeat()),
                joined(worker, b"another token, long enough", WHO),
                return_exceptions=True,
            )

    for error in asyncio.run(meet()):
        assert isinstance(error, JoinRefusedError)
        assert "the token is another one than the head's" in str(error)
