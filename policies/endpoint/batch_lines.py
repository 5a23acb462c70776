"""The lines of batch files: how a request is written, and what a reply to it means."""

import json
from dataclasses import dataclass, replace
from http import HTTPStatus

from ...configs.schema import EngineConfig
from ..engines.engine import Completion, EngineError
from ..engines.token_count import TokenCount
from .batch_endpoint import ANSWERS_AT, LineReply
from .batch_session import BatchLine
from .chat_completion import ChatRequest
from .dialect import Dialect
from .endpoint import ServedModel
from .faults import ATTEMPT_ERRORS, DeniedError, RefusedError, TemporaryError, fault_of
from .openai_engine import keyless
from .transport import Reply, status_error
from .vllm_fields import vllm_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class LineForm:
    """How lines are written for an endpoint, and read."""

    url: str
    key: str | None
    count: TokenCount

    def written(
        self, line: BatchLine, served: ServedModel, dialect: Dialect, config: EngineConfig
    ) -> bytes:
        """Return the line of a file that asks what a direct request would."""
        extra = {**vllm_fields(served, self.url, line.sampling, config), **config.besides}
        asked = {
            "custom_id": line.name,
            "method": "POST",
            "url": ANSWERS_AT,
            "body": self._question(line).body(served, dialect, extra),
        }
        return json.dumps(asked).encode() + b"\n"

    def read(
        self, line: BatchLine, reply: LineReply | None, dialect: Dialect
    ) -> Completion | RefusedError | TemporaryError:
        """Return the answer in a reply, or what keeps it from being one.

        Raises:
            EngineError: for a reply that says that none will ever be answered.
        """
        if reply is None or reply.status is None:
            return TemporaryError("the batch ended without an answer to it", kind="busy")
        try:
            if reply.status != HTTPStatus.OK:
                said = json.dumps(reply.body).encode()
                raise status_error(self.url, Reply(reply.status, {}, said))
            drawn = self._question(line).answered(reply.body, dialect, self.key)
        except ATTEMPT_ERRORS as error:
            fault = fault_of(self.url, error, self.key)
        else:
            told = drawn.provenance
            batched = None if told is None else replace(told, batched=True)
            return keyless(replace(drawn, provenance=batched))
        if isinstance(fault, DeniedError):
            return RefusedError(fault.reason, told="")
        if isinstance(fault, EngineError):
            raise fault
        return fault

    def _question(self, line: BatchLine) -> ChatRequest:
        return ChatRequest(line.request, line.sampling, count=self.count)
