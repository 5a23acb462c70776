"""A machine that serves the models of runs elsewhere: it joins a run, and joins again.

The head says when a session begins. Its first frame says what to load, so a session is a child
process as on the head's own machine (`PipeChannel`), with the environment, the log and the end of
one; frames go to and fro as they are. A machine that loses its head ends its children and tries to
join again, as does one whose head ends: it may resume. One that serves one run alone leaves when
its head says that the run is over.
"""

import asyncio
import random
import signal
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Literal

from .join_protocol import (
    RELAY,
    Heartbeat,
    JoinLine,
    JoinRefusedError,
    Newcomer,
    Parcel,
    ProtocolError,
    control,
    joined,
)
from .worker_offer import Offer
from .worker_session import WorkerSession

CONNECT_S = 10.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
LOOK_S = 0.5
ABANDONED_S = 86_400.0
"""After how long without a head a worker of one run takes that for over: it may have missed it."""
ENDING_S = 20.0
"""How long a machine that loses its head, or leaves, waits for its children to be gone."""

SIGNALS = (signal.SIGTERM, signal.SIGINT)

Parted = Literal["lost", "done", "stopped"]


class WorkerAgent:
    """Serves until it is told to stop, by a signal or by what it was offered."""

    def __init__(self, offer: Offer, say: Callable[[str], None]) -> None:
        self._offer = offer
        self._say = say
        self._sessions: dict[int, WorkerSession] = {}
        self._served = 0
        self._idle_since = time.monotonic()
        self._alone_since: float | None = time.monotonic()
        self._run_is_over = False
        self._stop = asyncio.Event()
        self._why = "it was told to stop"
        self._last = ""
        self._epoch: object = None

    def serve(self) -> None:
        """Join, serve and join again.

        Raises:
            JoinRefusedError: if the head refuses it for good, as its version or token is another.
        """
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            with suppress(ValueError):  # not the main thread
                loop.add_signal_handler(number, self._leave)
        pauses = 0
        while not self._stop.is_set():
            before = time.monotonic()
            parted = await self._joined_once()
            if parted != "lost":
                return
            pauses = 0 if time.monotonic() - before > LONGEST_PAUSE_S else pauses + 1
            pause = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (pauses - 1))
            # Not all at once, where many have lost one head.
            await self._pause(pause * random.uniform(0.5, 1.0))

    def _leave(self) -> None:
        """Leave because of a signal; the next one ends this process, and its children with it."""
        self._stop.set()
        for number in SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    async def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self._is_over():
            await self._stopped_within(min(LOOK_S, seconds))

    async def _stopped_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), seconds)
        return self._stop.is_set()

    async def _joined_once(self) -> Parted:
        offer = self._offer
        where = f"{offer.host}:{offer.port}"
        try:
            reader, writer = await asyncio.wait_for(
                asyncio.open_connection(
                    offer.host,
                    offer.port,
                    ssl=offer.tls,
                    server_hostname=offer.host if offer.tls else None,
                ),
                CONNECT_S,
            )
        except ssl.SSLCertVerificationError as error:
            raise JoinRefusedError(
                f"{where}: its certificate cannot be trusted ({error.verify_message}); --tls-ca "
                "names the certificate that vouches for it"
            ) from error
        except (OSError, TimeoutError) as error:
            self._say_once(f"{where} does not answer yet: {error or 'no answer'}; trying again")
            return "lost"
        line = JoinLine(reader, writer)
        try:
            who = Newcomer(name=offer.name, gpus=len(offer.gpus))
            pulse = await joined(line, offer.token, who)
        except (ProtocolError, TimeoutError, OSError) as error:
            line.abort()
            hint = "" if offer.tls else "; does it listen with TLS? then give --tls-ca"
            self._say_once(f"{where} does not answer as a head does: {error}{hint}; trying again")
            return "lost"
        self._say_once(f"joined {where}")
        return await self._served_by(line, pulse)

    async def _served_by(self, line: JoinLine, pulse: Heartbeat) -> Parted:
        """Serve a head until one of the two goes."""
        loop = asyncio.get_running_loop()
        epoch = object()
        self._epoch = epoch
        self._alone_since = None

        def send(parcel: Parcel) -> None:
            # From the threads of sessions; those of a connection before this one are not heard.
            def out() -> None:
                if self._epoch is epoch:
                    if parcel.kind != RELAY and parcel.said()["op"] == "ended":
                        self._forget(parcel.session)
                    line.send(parcel)

            with suppress(RuntimeError):
                loop.call_soon_threadsafe(out)

        listening = asyncio.create_task(self._listen(line, pulse, send))
        beats = asyncio.create_task(_beats(line, pulse.beat_s))
        leaving = asyncio.create_task(self._over())
        try:
            await asyncio.wait((listening, leaving), return_when=asyncio.FIRST_COMPLETED)
            if listening.done() and self._run_is_over and self._offer.one_run:
                self._say_once(listening.result())
                return "done"
            if listening.done():
                self._say_once(f"{listening.result()}; trying to join again")
                return "lost"
            line.send(control("leaving", why=self._why))
            return "stopped"
        finally:
            self._epoch = object()
            for task in (listening, beats, leaving):
                task.cancel()
            line.close()
            await asyncio.to_thread(self._end_all)
            self._idle_since = self._alone_since = time.monotonic()

    async def _listen(
        self, line: JoinLine, pulse: Heartbeat, send: Callable[[Parcel], None]
    ) -> str:
        """Do what the head says; return why it says no more."""
        while True:
            try:
                parcel = await line.receive(pulse.silence_s)
                if parcel.kind == RELAY:
                    session = self._sessions.get(parcel.session)
                    if session is not None:
                        session.take(parcel.body)
                elif not self._obey(parcel, send):
                    return "the run is over" if self._run_is_over else "the run ended"
            except TimeoutError:
                return f"nothing was heard of the head for {pulse.silence_s:g} s"
            except (OSError, ProtocolError) as error:
                return f"the connection to the head is lost ({error})"

    def _obey(self, parcel: Parcel, send: Callable[[Parcel], None]) -> bool:
        """Do what a message orders; return whether the head goes on."""
        said = parcel.said()
        session = self._sessions.get(parcel.session)
        match said["op"]:
            case "begin":
                self._begin(parcel.session, int(said.get("gpus", 0)), send)
            case "kill" | "close" if session is not None:
                _end(session, grace=said["op"] == "close")
            case "goodbye":
                self._run_is_over = bool(said.get("over"))
                return False
            case _:
                pass
        return True

    def _begin(self, number: int, gpus: int, send: Callable[[Parcel], None]) -> None:
        taken = {gpu.handle for session in self._sessions.values() for gpu in session.gpus}
        free = [gpu for gpu in self._offer.gpus if gpu.handle not in taken]
        if len(free) < gpus:
            raise ProtocolError(f"a session on {gpus} GPUs, of which {len(free)} are free")
        log = self._offer.logs / f"session-{number}.log"
        self._served += 1
        self._sessions[number] = WorkerSession(number, free[:gpus], log, send=send, say=self._say)

    def _forget(self, number: int) -> None:
        self._sessions.pop(number, None)
        self._idle_since = time.monotonic()

    def _end_all(self) -> None:
        sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            _end(session, grace=False)
        until = time.monotonic() + ENDING_S
        for session in sessions:
            if not session.wait(max(0.0, until - time.monotonic())):
                self._say(
                    f"the process of session {session.number} was killed, and has not ended after "
                    f"{ENDING_S:g} s: its GPUs may not be free"
                )

    async def _over(self) -> None:
        """Wait until it is time to leave."""
        while not self._is_over():
            await self._stopped_within(LOOK_S)

    def _is_over(self) -> bool:
        offer = self._offer
        if not self._stop.is_set() and not self._sessions:
            idle = time.monotonic() - self._idle_since
            if offer.once and self._served:
                self._why = "it serves once"
                self._stop.set()
            elif offer.idle_s is not None and idle > offer.idle_s:
                self._why = f"it idled for {offer.idle_s:g} s"
                self._stop.set()
            elif offer.one_run and self._is_abandoned():
                self._say(f"no run was there for {ABANDONED_S:g} s")
                self._stop.set()
        return self._stop.is_set()

    def _is_abandoned(self) -> bool:
        alone = self._alone_since
        return alone is not None and time.monotonic() - alone > ABANDONED_S

    def _say_once(self, text: str) -> None:
        """Say something that is not what was said last."""
        if text != self._last:
            self._say(text)
        self._last = text


def _end(session: WorkerSession, *, grace: bool) -> None:
    """Have a session end, in a thread of its own: that may take a while."""
    threading.Thread(target=partial(session.end, grace=grace), daemon=True).start()


async def _beats(line: JoinLine, beat_s: float) -> None:
    while True:
        await asyncio.sleep(beat_s)
        line.send(control("beat"))
