"""One endpoint of a fleet, and how it shows what it serves."""

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...configs.endpoint_list import ListedEndpoint
from ...configs.schema import EngineConfig
from ..engines.engine import EngineError
from .chat_completion import ChatRequest
from .dialect import Dialect
from .endpoint import ServedModel, ask
from .faults import ATTEMPT_ERRORS, RefusedError, TemporaryError, fault_of
from .fleet_canary import OTHERS, CanaryAnswer, Portrait, canary_requests, read_canary_answer
from .gate import Gate
from .transport import Connections, reading
from .vllm_fields import vllm_fields


@dataclass(frozen=True, slots=True)
class Introduction:
    """What an endpoint serves, and its portrait."""

    served: ServedModel
    portrait: Portrait


@dataclass(slots=True, eq=False)
class FleetMember:
    """One endpoint: its gate and connections, and what is known of it.

    `served` is what it serves, while nobody doubts that; each of `doubts` asks for another proof.
    `differs` says why it is left out, until `asked_again_at`.
    """

    gate: Gate
    connections: Connections
    listed: ListedEndpoint
    served: ServedModel | None = None
    doubts: int = 0
    differs: str | None = None
    asked_again_at: float = -math.inf
    shown_at: float = 0.0
    used_at: float = -math.inf
    fingerprints: set[str] = field(default_factory=set[str])
    meeting: asyncio.Task[ServedModel] | None = None

    def name_for_run(self, served: ServedModel, config: EngineConfig) -> str:
        """Return the name by which the run knows what it serves here under a name of its own."""
        if self.listed.model_name is not None and config.model_name is not None:
            return config.model_name
        return served.name


class Introducer:
    """Asks endpoints what they serve; `dialect` is what they have been found to take."""

    def __init__(self, config: EngineConfig, dialect: Callable[[], Dialect]) -> None:
        self.config = config
        self._dialect = dialect

    async def served(self, member: FleetMember) -> ServedModel:
        """Return which model an endpoint says that it serves.

        Raises:
            TemporaryError: if it does not answer.
            EngineError: if it cannot be used.
        """
        name = member.listed.model_name or self.config.model_name
        connections = member.connections
        try:
            async with asyncio.timeout(self.config.timeout_s):
                return await ask(connections, name)
        except ATTEMPT_ERRORS as error:
            fault = fault_of(connections.url, error, connections.key)
        if isinstance(fault, RefusedError):
            fault = EngineError(f"{connections.url}: cannot tell what it serves ({fault})")
        raise fault  # outside: a traceback from within would hold the server's text

    async def introduction(self, member: FleetMember) -> Introduction:
        """Return what an endpoint serves, with its portrait.

        Raises: as `served`.
        """
        served = await self.served(member)
        asked = [self._answer(member, served, one) for one in canary_requests()]
        try:
            answers = tuple(await asyncio.gather(*asked))
        except RefusedError:
            answers = ()  # nothing to compare it by
        portrait = Portrait(
            name=member.name_for_run(served, self.config),
            max_model_len=served.max_model_len,
            answers=answers,
        )
        return Introduction(served, portrait)

    async def _answer(
        self, member: FleetMember, served: ServedModel, question: ChatRequest
    ) -> CanaryAnswer:
        """Ask one question, dropping what of it the endpoint does not take.

        Raises:
            TemporaryError, RefusedError, EngineError: for every failure.
        """
        dialect = self._dialect()
        while True:
            try:
                return await self._answered(member, served, question, dialect)
            except RefusedError as refusal:
                without = dialect.without(refusal, question.request.messages)
                if without is None:
                    raise
                dialect = without

    async def _answered(
        self, member: FleetMember, served: ServedModel, question: ChatRequest, dialect: Dialect
    ) -> CanaryAnswer:
        connections = member.connections
        member.gate.pace.count(asyncio.get_running_loop().time())
        try:
            async with asyncio.timeout(self.config.timeout_s):
                body = question.body(served, dialect, self._besides(member, served, question))
                if dialect.logprobs:
                    body["top_logprobs"] = OTHERS
                reply: Any = await connections.post("chat/completions", body)
                with reading(reply):
                    fingerprint = reply.get("system_fingerprint")
                    if isinstance(fingerprint, str):
                        member.fingerprints.add(fingerprint)
                    return read_canary_answer(reply)
        except ATTEMPT_ERRORS as error:
            fault = fault_of(connections.url, error, connections.key)
        raise fault  # outside: a traceback from within would hold the server's text

    def _besides(
        self, member: FleetMember, served: ServedModel, question: ChatRequest
    ) -> Mapping[str, Any]:
        fields = vllm_fields(served, member.connections.url, question.sampling, self.config)
        return {**fields, **self.config.besides}


def is_break(fault: object) -> bool:
    """Whether another server may answer at this place from now on."""
    return isinstance(fault, TemporaryError) and fault.gone
