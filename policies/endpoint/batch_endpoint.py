"""What an endpoint does with batch files: it takes them, and answers them when it likes.

What it says is checked as it is read; the errors are those of one attempt, as `faults` knows them.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, cast

import openai

from ..engines.engine import EngineError
from .endpoint import ServedModel, ask
from .faults import shown
from .transport import ANSWER_BYTES, ANSWER_PARTS, Connections

OUTPUT_BYTES = 2**30
"""The largest file of answers that is read."""

PAGE = 100
"""Batches that are listed at once."""

ANSWERS_AT = "/v1/chat/completions"
"""What each line asks for, whatever stands before it in the endpoint's address."""

MISSING = (openai.NotFoundError,)
NONE_HERE = frozenset({404, 405, 501})

Ended = Literal["completed", "expired", "cancelled", "failed"]
ENDED: Mapping[object, Ended] = {
    "completed": "completed",
    "expired": "expired",
    "cancelled": "cancelled",
    "failed": "failed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchState:
    """Whether a batch has ended, and how; `files` hold its answers and errors, `told` says why."""

    ended: Ended | None
    files: tuple[str, ...]
    told: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LineReply:
    """What came of one line of a file; no `status` if it was not asked."""

    status: int | None
    body: Any


class BatchEndpoint:
    """One endpoint, for one event loop."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self.url = connections.url
        self.key = connections.key

    @classmethod
    def at(cls, url: str, key: str | None) -> Self:
        """Return the endpoint at an address; nothing is asked of it yet."""
        return cls(Connections(url, key, most=OUTPUT_BYTES, parts=float("inf")))

    async def served(self, model_name: str | None) -> ServedModel:
        """Return the model that is asked, once the endpoint is known to take batch files.

        Raises:
            EngineError: if it does not; and as `endpoint.ask`.
        """
        try:
            await self._connections.get("batches", limit=1)
        except openai.APIStatusError as error:
            if error.status_code not in NONE_HERE:
                raise
            status = error.status_code
        else:
            return await ask(self._connections, model_name)
        raise EngineError(
            f"{self.url}: this endpoint takes no batch files (HTTP {status} at /batches): set "
            "engine.batch=false"
        )

    async def upload(self, data: bytes) -> str:
        """Send a file of requests; return its name there."""
        return _named(await self._connections.upload("files", data, purpose="batch"))

    async def begun(self, file: str) -> str:
        """Return the batch that answers a file; begin it, unless that was done before."""
        found = await self._found(file)
        if found is not None:
            return found
        asked = {
            "input_file_id": file,
            "endpoint": ANSWERS_AT,
            "completion_window": "24h",
        }
        return _named(await self._connections.post("batches", asked))

    async def state(self, batch: str) -> BatchState:
        """Return how far a batch is."""
        told: Any = await self._connections.get(f"batches/{batch}")
        files = [told.get(name) for name in ("output_file_id", "error_file_id")]
        return BatchState(
            ended=ENDED.get(told["status"]),
            files=tuple(file for file in files if isinstance(file, str) and file),
            told=shown(_complaint(told.get("errors")), self.key),
        )

    async def replies(self, file: str) -> dict[str, LineReply]:
        """Return the replies in a file, by the names of their requests; none if it is gone."""
        try:
            data = await self._connections.download(f"files/{file}/content")
        except MISSING:
            return {}
        return dict(_replies(data))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._connections.aclose()

    async def _found(self, file: str) -> str | None:
        """Return the batch that answers a file, if it was begun."""
        page: dict[str, Any] = {"limit": PAGE}
        while True:
            listed: Any = await self._connections.get("batches", **page)
            batches: list[Any] = listed["data"]
            for batch in batches:
                if batch.get("input_file_id") == file:
                    return _named(batch)
            if not batches or listed.get("has_more") is not True:
                return None
            page["after"] = _named(batches[-1])


def _named(told: Any) -> str:
    """Return the name of what was told of; raise TypeError or LookupError if it has none."""
    name = told["id"]
    if not isinstance(name, str):
        raise TypeError
    return name


def _complaint(errors: Any) -> str:
    """Return the first of a batch's errors."""
    listed = cast("dict[str, Any]", errors).get("data") if isinstance(errors, dict) else None
    first = cast("list[Any]", listed)[0] if isinstance(listed, list) and listed else None
    said = cast("dict[str, Any]", first).get("message") if isinstance(first, dict) else None
    return said if isinstance(said, str) else ""


def _replies(data: bytes) -> Iterator[tuple[str, LineReply]]:
    """Give the replies that can be read; the others were not answered."""
    for line in data.splitlines():
        parts = line.count(b"{") + line.count(b"[")
        if len(line) > ANSWER_BYTES or parts > ANSWER_PARTS:
            continue
        try:
            told: Any = json.loads(line)
            name: Any = told["custom_id"]
            response: Any = told.get("response") or {}
            reply = LineReply(status=response.get("status_code"), body=response.get("body"))
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            continue
        if isinstance(name, str):
            yield name, reply
