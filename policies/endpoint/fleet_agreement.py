"""What the endpoints of a fleet agree to serve, how they come to it, and where a run keeps it."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from ...stores.keys import digest
from .endpoint import ServedModel
from .fleet_canary import Portrait, read_portrait, write_portrait
from .fleet_member import FleetMember, Introducer, Introduction

GATHER_S = 10.0
"""How long the others are waited for once the first has shown what it serves."""


class FleetAgreement:
    """The portrait that all endpoints of one model must show.

    It is that of most of them at first. In `folder` it outlives the process, so that a run that is
    resumed does not go on with other weights.
    """

    def __init__(
        self,
        introducer: Introducer,
        members: Callable[[], Sequence[FleetMember]],
        folder: Path | None,
    ) -> None:
        self._introducer, self._members, self._folder = introducer, members, folder
        self._portrait: Portrait | None = None
        self._kept: Path | None = None
        self._early: dict[FleetMember, Introduction] = {}
        self._election: asyncio.Task[None] | None = None

    async def served(self, member: FleetMember) -> tuple[ServedModel | None, str]:
        """Return what an endpoint serves; None if it differs from what was agreed on, and how.

        Raises:
            TemporaryError, EngineError: if it does not tell.
        """
        if self._portrait is None:
            await self._settled()
        told = self._early.pop(member, None) or await self._introducer.introduction(member)
        if self._difference(told) is not None:
            # Once may be chance, where an endpoint does not always draw the same.
            told = await self._introducer.introduction(member)
        why = self._difference(told)
        return (told.served, "") if why is None else (None, why)

    def none_left(self, reasons: str) -> str:
        """Return what to tell where no endpoint agrees."""
        kept = "" if self._kept is None else f"; to go on with other weights, remove {self._kept}"
        return (
            f"no endpoint can be used: {reasons}; nothing is lost: mend that, or let them serve "
            f"again what they served when the run began, then resume{kept}"
        )

    @property
    def tasks(self) -> Sequence[asyncio.Task[None]]:
        """What is under way."""
        return () if self._election is None else (self._election,)

    def _difference(self, told: Introduction) -> str | None:
        """Return in what an endpoint differs; None if it agrees."""
        if self._portrait is None:
            self._settle([told.portrait])
        return None if self._portrait is None else self._portrait.difference(told.portrait)

    def _settle(self, shown: Sequence[Portrait]) -> None:
        """Agree on what was agreed on before, else on what most of these show, in their order."""
        kept = (self._read(portrait) for portrait in shown)
        before = next((portrait for portrait in kept if portrait is not None), None)
        self._portrait = before or _most_common(shown)
        self._kept = self._path(self._portrait)
        if before is None and self._kept is not None:
            write_portrait(self._kept, self._portrait)

    async def _settled(self) -> None:
        """Have the endpoints agree, once for all that wait for it."""
        if self._election is None or self._election.done():
            self._election = asyncio.create_task(self._elect())
        await asyncio.shield(self._election)

    async def _elect(self) -> None:
        """Let all show what they serve: those that do not long after the first.

        One that does not answer is asked again when something is to be sent to it.
        """
        members = self._members()
        asked = [asyncio.create_task(self._introducer.introduction(m)) for m in members]
        try:
            await _first_answered(asked)
            await asyncio.wait(asked, timeout=GATHER_S)
        finally:
            for task in asked:
                task.cancel()
        ended = zip(members, await asyncio.gather(*asked, return_exceptions=True), strict=True)
        self._early = {member: told for member, told in ended if isinstance(told, Introduction)}
        if self._early:
            self._settle([told.portrait for told in self._early.values()])

    def _read(self, portrait: Portrait) -> Portrait | None:
        path = self._path(portrait)
        return None if path is None else read_portrait(path)

    def _path(self, portrait: Portrait) -> Path | None:
        """Return where it is kept what a model shows that is asked in this way."""
        if self._folder is None:
            return None
        config = self._introducer.config
        asked = [portrait.name, config.besides, dict(config.chat_template_kwargs)]
        return self._folder / f"{digest(asked)[:32]}.json"


async def _first_answered(asked: Sequence[asyncio.Task[Introduction]]) -> None:
    """Return when one has answered, or none will."""
    waiting = set(asked)
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if any(task.exception() is None for task in done):
            return


def _most_common(portraits: Sequence[Portrait]) -> Portrait:
    """Return the portrait with which most agree; of several the first."""
    agreeing = [sum(one.difference(other) is None for other in portraits) for one in portraits]
    return portraits[agreeing.index(max(agreeing))]
