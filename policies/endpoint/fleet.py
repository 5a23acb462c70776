"""The endpoints that serve one model together: who they are, who joins and leaves, who is left out.

Before an endpoint of several is given work it says which model it serves, and shows by a canary
(`fleet_canary`) that it serves the weights that the others serve. It does so again after its
connections broke, when it names another fingerprint, and from time to time. What it answers
meanwhile is held back until it has. What most of them show at first is agreed on, and kept with the
run. An endpoint that shows something else is left out until it agrees, and where none is left the
run stops: it never goes on with other weights unasked.

Where a file lists the endpoints (`endpoint_file`), they join and leave with its lines.

Everything runs on one event loop.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...configs.endpoint_list import ListedEndpoint
from ...configs.schema import EngineConfig
from ..engines.engine import Completion, EngineError
from .dialect import Dialect
from .endpoint import ServedModel
from .endpoint_file import EndpointFile
from .faults import TemporaryError
from .fleet_agreement import FleetAgreement
from .fleet_member import FleetMember, Introducer
from .gate import Gate, Passage
from .pace import RequestPace, pace_of
from .traffic import Traffic
from .transport import Connections, allow_connections

LOOK_S = 2.0
"""How often it is looked whether the file has changed, and whose canary is due."""
IDLE_S = 10.0
"""After so long without a request a server may have been restarted without breaking any."""
LEFT_OUT_S = 60.0
"""How soon an endpoint is asked again that was left out."""

logger = logging.getLogger("lpfloop.endpoint")


class Fleet:
    """The endpoints of an engine.

    `dialect` is what they have been found to take. `folder` keeps what was agreed on.
    """

    def __init__(
        self,
        listed: Sequence[ListedEndpoint],
        config: EngineConfig,
        key: str | None,
        *,
        dialect: Callable[[], Dialect],
        folder: Path | None,
    ) -> None:
        self._config, self._key = config, key
        self._introducer = Introducer(config, dialect)
        self._agreement = FleetAgreement(self._introducer, lambda: self.members, folder)
        self.traffic = Traffic(
            [one.url for one in listed], config.concurrency, [self._pace(one) for one in listed]
        )
        self.traffic.paced.limit(config.requests_per_minute, config.tokens_per_minute)
        self._members: dict[Gate, FleetMember] = {}
        for gate, one in zip(self.traffic.gates, listed, strict=True):
            self._add(gate, one)
        self._file = None if config.endpoint_list is None else EndpointFile(config.endpoint_list)
        self._tending: asyncio.Task[None] | None = None
        self._remarks: list[str] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._allow_connections()

    @property
    def members(self) -> list[FleetMember]:
        """The endpoints that are asked."""
        return [self._members[gate] for gate in self.traffic.gates]

    @property
    def tasks(self) -> set[asyncio.Task[Any]]:
        """What is under way besides requests."""
        return {*self._tasks, *self._agreement.tasks}

    def told(self) -> str:
        """Return the addresses, for messages."""
        return ", ".join(gate.url for gate in self.traffic.gates)

    def at(self, gate: Gate) -> FleetMember:
        """Return the endpoint behind a gate, also one that is leaving."""
        return self._members[gate]

    def configure(self, config: EngineConfig) -> None:
        """Use new live settings."""
        self._config = self._introducer.config = config
        self.traffic.resize(config.concurrency)
        self.traffic.limit(config.requests_per_minute, config.tokens_per_minute)
        self._allow_connections()

    async def introduced(self, member: FleetMember, passage: Passage) -> ServedModel:
        """Return what an endpoint serves that is to be asked, once that is agreed on.

        Raises:
            TemporaryError, EngineError: if it does not tell, is left out, or none is left.
        """
        if _now() - member.used_at > IDLE_S:
            self.doubt(member)
        member.used_at = _now()
        if member.served is not None:
            return member.served
        served = await self._proof(member)
        self.traffic.prove(passage)
        return served

    async def vouched(self, member: FleetMember, doubts: int, drawn: Completion) -> Completion:
        """Return an answer when it is known to come from the weights that were agreed on.

        `doubts` are those that there were when it was asked for.

        Raises: as `introduced`.
        """
        if not self._config.has_fleet or drawn.provenance is None:
            return drawn
        member.used_at = _now()
        if self._compares:
            fingerprint = drawn.provenance.system_fingerprint
            if fingerprint and fingerprint not in member.fingerprints:
                self.doubt(member)
            if member.doubts != doubts:
                await self._proof(member)
            if fingerprint:
                member.fingerprints.add(fingerprint)
        remarks, self._remarks = self._remarks, []
        return self._as_told_to_run(member, drawn, remarks)

    def doubt(self, member: FleetMember) -> None:
        """Ask an endpoint for another proof before anything that it answers counts."""
        if self._compares:
            member.doubts += 1
            member.served = None

    def tend(self, is_busy: Callable[[], bool]) -> None:
        """Follow the file and renew the canaries, if there are any, while the engine is busy."""
        is_needed = self._file is not None or self._compares
        if is_needed and (self._tending is None or self._tending.done()):
            self._tending = self._spawn(self._tend(is_busy))

    async def aclose(self) -> None:
        """Close all connections."""
        await asyncio.gather(*(member.connections.aclose() for member in self._members.values()))

    @property
    def _compares(self) -> bool:
        return self._config.has_fleet and self._config.canary_s is not None

    def _pace(self, listed: ListedEndpoint) -> RequestPace:
        return pace_of(listed.url, self._key, listed.model_name or self._config.model_name)

    def _add(self, gate: Gate, listed: ListedEndpoint) -> None:
        self._members[gate] = FleetMember(gate, Connections(listed.url, self._key), listed)

    def _allow_connections(self) -> None:
        allow_connections(self._config.concurrency * len(self._members))

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, should nobody wait for it any more

    def _as_told_to_run(
        self, member: FleetMember, drawn: Completion, remarks: Sequence[str]
    ) -> Completion:
        """Return an answer with what is to be told, under the name by which the run knows it."""
        told, served = drawn.provenance, member.served
        if told is None:
            return drawn
        if served is not None and told.model == served.name:
            told = replace(told, model=member.name_for_run(served, self._config))
        return replace(drawn, provenance=replace(told, remarks=(*told.remarks, *remarks)))

    async def _tend(self, is_busy: Callable[[], bool]) -> None:
        while is_busy():
            self._follow_file()
            await self._see_off()
            self._renew_canaries()
            await asyncio.sleep(LOOK_S)

    def _follow_file(self) -> None:
        """Let endpoints join and leave as the file says."""
        listed = None if self._file is None else self._file.changed()
        if listed is None:
            return
        present = {member.listed: member for member in self.members}
        for one in listed:
            if one not in present:
                self._add(self.traffic.join(one.url, self._pace(one)), one)
                logger.warning("%s: joins the endpoints", one.url)
        for one, member in present.items():
            if one not in listed:
                under_way = member.gate.under_way
                self.traffic.leave(member.gate)
                logger.warning("%s: leaves the endpoints; %d under way", one.url, under_way)
        self._allow_connections()

    async def _see_off(self) -> None:
        """Close the connections to endpoints that have left, once nothing is under way there."""
        gone = [gate for gate in self._members if gate.has_left and not gate.under_way]
        for gate in gone:
            await self._members.pop(gate).connections.aclose()

    def _renew_canaries(self) -> None:
        """Have the endpoints that work show what they serve, when it is time to."""
        if not self._compares or self._config.canary_s is None:
            return
        due = _now() - self._config.canary_s
        for member in self.members:
            if member.served is not None and member.shown_at <= due:
                self._meet(member)

    async def _proof(self, member: FleetMember) -> ServedModel:
        """Return what an endpoint serves, asked anew unless that was just done.

        Raises: as `introduced`.
        """
        if member.differs is not None and _now() < member.asked_again_at:
            raise _passed_on(member.differs)
        return await asyncio.shield(self._meet(member))

    def _left_out(self, member: FleetMember, why: str) -> TemporaryError | EngineError:
        """Leave out an endpoint for a while; return what that means for who asked it."""
        url = member.gate.url
        if member.differs != why:
            logger.warning("%s: left out: %s", url, why)
            self._remarks.append(f"the endpoint {url} is left out: {why}")
        member.differs, member.served = why, None
        member.doubts += 1
        member.asked_again_at = _now() + LEFT_OUT_S
        if all(one.differs is not None for one in self.members):
            reasons = "; ".join(f"{one.gate.url}: {one.differs}" for one in self.members)
            error = EngineError(self._agreement.none_left(reasons))
            self.traffic.stop(error)
            return error
        self.traffic.shut(member.gate, why, LEFT_OUT_S)
        return _passed_on(why)

    async def _served(self, member: FleetMember) -> tuple[ServedModel | None, str]:
        """Return what an endpoint serves; None if it differs from what was agreed on, and how."""
        if self._compares:
            return await self._agreement.served(member)
        return await self._introducer.served(member), ""

    def _meet(self, member: FleetMember) -> asyncio.Task[ServedModel]:
        """Have an endpoint show what it serves, once for all that wait for it."""
        if member.meeting is None or member.meeting.done():
            member.meeting = self._spawn(self._met(member))
        return member.meeting

    async def _met(self, member: FleetMember) -> ServedModel:
        """Return what an endpoint serves, if it is what was agreed on.

        Raises: as `introduced`.
        """
        while True:
            doubts = member.doubts
            try:
                served, why = await self._served(member)
            except EngineError as error:
                if not (self._compares or self._file):
                    raise
                served, why = None, _without_url(error, member)
            if served is None:
                raise self._left_out(member, why)
            if doubts == member.doubts:  # else somebody else may answer there by now
                break
        if member.differs is not None:
            logger.warning("%s: agrees with the others again", member.gate.url)
        member.served, member.differs = served, None
        member.shown_at = member.used_at = _now()
        return served


def _passed_on(why: str) -> TemporaryError:
    """Return the fault of an endpoint that is left out: what it was to answer goes elsewhere."""
    return TemporaryError(why, pause_s=LEFT_OUT_S, suspect=False, shut=True)


def _without_url(error: EngineError, member: FleetMember) -> str:
    return str(error).removeprefix(f"{member.gate.url}: ")


def _now() -> float:
    return asyncio.get_running_loop().time()
