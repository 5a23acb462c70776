"""Where a run listens for workers that join it by TCP, and the thread that talks with them.

One thread serves all connections. A stranger is let go with a line in the log, and few of them are
listened to at a time. A machine of which nothing is heard for a while counts as lost, and its
connection is dropped: whatever it says later belongs to no session any more.
"""

import asyncio
import json
import logging
import ssl
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from ...configs.section import ConfigError
from .channel import Blame
from .join_protocol import (
    HELLO_S,
    RELAY,
    Heartbeat,
    JoinLine,
    JoinRefusedError,
    Parcel,
    ProtocolError,
    admitted,
    control,
    split_address,
)
from .machine_claim import Machine, Parting
from .machine_queue import Joined, MachineQueue
from .tcp_channel import TcpChannel
from .wire import Frame
from .worker import Starter, Worker

logger = logging.getLogger("lpfloop.worker")

STRANGERS = 64
"""Connections that may be open at a time without having proved that they know the token."""
ARRANGE_S = 0.5
TOLD_STRANGERS = 20
"""Strangers that get a line in the log each; of those after them one in a hundred does."""

GONE = (ConnectionError, OSError, asyncio.IncompleteReadError, ssl.SSLError)


class _Connection:
    """A machine that joined, as the queue has things done there."""

    def __init__(self, line: JoinLine) -> None:
        self.line = line

    def post(self, session: int, frame: bytes) -> None:
        """Send a frame to a session there."""
        self.line.send(Parcel(RELAY, session, frame))

    def begin(self, session: int, gpus: int) -> None:
        """Have a session begin there, on so many GPUs."""
        self.line.send(control("begin", session, gpus=gpus))

    def end(self, session: int, *, grace: bool) -> None:
        """Have a session end there."""
        self.line.send(control("close" if grace else "kill", session))


class JoinListener:
    """Listens while it is open; `starter` makes what starts workers at machines that join."""

    def __init__(
        self,
        address: str,
        token: bytes,
        *,
        tls: ssl.SSLContext | None = None,
        patience_s: float | None = None,
        pulse: Heartbeat = Heartbeat(),  # noqa: B008 -- frozen
    ) -> None:
        self.machine_queue = MachineQueue()
        self.patience_s = patience_s
        self._token = token
        self._tls = tls
        self._pulse = pulse
        self._strangers = 0
        self._turned_away = 0
        self._joined = Joined(
            address=address, encrypted=tls is not None, machines=(), idle=0, waiting=()
        )
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_tell_fault)
        self._tasks = set[asyncio.Task[None]]()
        self._host, self._port = split_address(address)
        self._open()

    @property
    def address(self) -> str:
        """Where workers join, as HOST:PORT."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._port}"

    @property
    def joined(self) -> Joined:
        """Who has joined, and who waits."""
        return self._joined

    def starter(self, group: str, gpus: int, *, patient: bool = False) -> Starter:
        """Return what starts the workers of a replica on so many GPUs of a machine that joined.

        `group` is what its model is called. One that is `patient` waits for as long as the run
        goes on.
        """
        replica = object()

        def start(opening: Frame) -> Worker:
            model = json.dumps([opening[name] for name in ("role", "kind", "model")])
            channel = TcpChannel(
                self,
                group=group,
                model=model,
                gpus=gpus,
                replica=replica,
                patience_s=None if patient else self.patience_s,
            )
            return Worker(opening, channel)

        return start

    def do(self, job: Callable[[], None]) -> None:
        """Have the listener's thread do a job."""
        # Once it is closed there is nothing left to do.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(job)

    def close(self, *, over: bool = False) -> None:
        """Let all workers go, who may join again, and listen no more.

        They are told whether the run is `over`: nobody will resume it as it is.
        """
        if self._loop.is_closed():
            return
        self.do(partial(self._stop, over=over))
        self._thread.join()
        self._loop.close()

    def _open(self) -> None:
        opened: list[OSError | None] = []
        is_open = threading.Event()
        self._thread = threading.Thread(
            target=self._serve, args=(opened, is_open), name="join-listener", daemon=True
        )
        self._thread.start()
        is_open.wait()
        if isinstance(error := opened[0], OSError):
            self._thread.join()
            self._loop.close()
            why = str(error.strerror or error).partition(" (")[0]
            raise ConfigError(
                f"workers.listen={self.address}: cannot listen there: {why}; choose another port, "
                "or an address of this machine"
            ) from error

    def _serve(self, opened: list[OSError | None], is_open: threading.Event) -> None:
        """Run the event loop (the body of the thread)."""
        asyncio.set_event_loop(self._loop)
        timing: dict[str, Any] = {"ssl_handshake_timeout": HELLO_S} if self._tls else {}
        try:
            server = self._loop.run_until_complete(
                asyncio.start_server(
                    self._met, self._host, self._port, ssl=self._tls, backlog=1024, **timing
                )
            )
        except OSError as error:
            opened.append(error)
            is_open.set()
            return
        self._port = server.sockets[0].getsockname()[1]
        opened.append(None)
        is_open.set()
        self._arrange()
        self._loop.run_forever()
        server.close()
        for task in self._tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
        # A turn of the loop more, in which what was sent leaves.
        self._loop.run_until_complete(asyncio.sleep(0.05))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())

    def _stop(self, *, over: bool) -> None:
        for member in self.machine_queue.members:
            if isinstance(member.site, _Connection):
                member.site.line.send(control("goodbye", over=over))
                member.site.line.close()
        self.machine_queue.close("the run ended")
        self._loop.stop()

    def _arrange(self) -> None:
        """Look again at who waits, as time has passed, and keep what is told of it."""
        present = self.machine_queue
        present.arrange()
        idle = sum(member.free for member in present.members)
        waiting = sorted({claim.group for claim in present.waiting if present.is_short(claim)})
        self._joined = Joined(
            address=self.address,
            encrypted=self._tls is not None,
            machines=tuple(_described(member) for member in present.members),
            idle=idle,
            waiting=tuple(waiting),
        )
        self._loop.call_later(ARRANGE_S, self._arrange)

    async def _met(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Serve one connection, from the greeting to its end."""
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        line, where = JoinLine(reader, writer), _where(writer)
        if self._strangers >= STRANGERS:
            self._turn_away(where, f"{STRANGERS} others are being greeted")
            line.abort()
            return
        self._strangers += 1
        try:
            async with asyncio.timeout(HELLO_S):
                newcomer = await admitted(line, self._token, self._pulse)
        except (JoinRefusedError, ProtocolError, TimeoutError, *GONE) as error:
            self._turn_away(where, str(error) or "it said nothing")
            line.close()
            return
        finally:
            self._strangers -= 1
        member = Machine(
            name=f"{newcomer.name} ({where})", gpus=newcomer.gpus, site=_Connection(line)
        )
        await self._host_member(member, line)

    async def _host_member(self, member: Machine, line: JoinLine) -> None:
        """Hear a machine until it leaves, or is lost."""
        logger.info("worker %s joined", _described(member))
        self.machine_queue.join(member)
        beats = asyncio.create_task(_beat(line, self._pulse.beat_s))
        how, blame = "the run ended", "nobody"
        try:
            how, blame = await self._heard(member, line)
        finally:
            beats.cancel()
            line.abort() if blame == "line" else line.close()
            if member in self.machine_queue.members:
                logger.warning("worker %s is gone: %s", member.name, how)
                self.machine_queue.leave(member, how, blame)

    async def _heard(self, member: Machine, line: JoinLine) -> tuple[str, Blame]:
        """Take what a machine sends; return how it parted."""
        while True:
            try:
                parcel = await line.receive(self._pulse.silence_s)
                if parcel.kind == RELAY:
                    self._deliver(member, parcel)
                elif (parting := self._obey(member, parcel)) is not None:
                    return parting
            except TimeoutError:
                silence = f"{self._pulse.silence_s:g} s"
                return f"nothing was heard of its machine for {silence}", "line"
            except GONE:
                return "the connection to its machine broke", "line"
            except (ProtocolError, KeyError, TypeError) as error:
                return f"its machine sent what no worker sends: {error}", "line"

    def _deliver(self, member: Machine, parcel: Parcel) -> None:
        claim = member.claims.get(parcel.session)
        # What comes for a session that is over is dropped.
        if claim is not None:
            claim.on_frame(parcel.body)

    def _obey(self, member: Machine, parcel: Parcel) -> tuple[str, Blame] | None:
        said = parcel.said()
        if said["op"] == "ended":
            parting = Parting(str(said["how"]), str(said["words"]), "worker")
            self.machine_queue.ended(member, parcel.session, parting)
        elif said["op"] == "leaving":
            return f"its machine leaves ({said['why']})", "nobody"
        elif said["op"] != "beat":
            raise ProtocolError(f"{said['op'][:40]!r}")
        return None

    def _turn_away(self, where: str, why: str) -> None:
        self._turned_away += 1
        if self._turned_away <= TOLD_STRANGERS or not self._turned_away % 100:
            logger.warning("%s cannot join as a worker: %s", where, why)


async def _beat(line: JoinLine, beat_s: float) -> None:
    while True:
        await asyncio.sleep(beat_s)
        line.send(control("beat"))


def _where(writer: StreamWriter) -> str:
    peer: Any = writer.get_extra_info("peername")
    return f"{peer[0]}:{peer[1]}" if peer else "somebody"


def _described(member: Machine) -> str:
    what = {0: "on its CPU", 1: "with 1 GPU"}.get(member.gpus, f"with {member.gpus} GPUs")
    return f"{member.name} {what}"


def _tell_fault(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what nobody awaits: a stranger that speaks no TLS, mostly."""
    why = context.get("exception") or context.get("message")
    if isinstance(why, asyncio.CancelledError):
        return
    logger.warning("a connection failed where workers join: %s", why)
