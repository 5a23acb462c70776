"""Warnings about a stage's answers or figures; the journal keeps each sentence once per stage."""

from functools import partial
from typing import Any, cast

from ...stores.keys import Json
from ...stores.lake import RunWriter

MOST = 20
"""The most warnings that are kept of a stage, because reasons of failed requests may all differ."""
REMARK = "remark"
"""The kind of the event: iteration, stage, remark."""


class RunWarnings:
    """The warnings about a stage's work; those that an earlier process kept are not repeated."""

    def __init__(self, store: RunWriter, iteration: int, stage: str) -> None:
        self._store = store
        self._place: dict[str, Json] = {"iteration": iteration, "stage": stage}
        kept = cast("list[dict[str, Any]]", store.journal.events(REMARK))
        self._given = {
            event["remark"]
            for event in kept
            if (event["iteration"], event["stage"]) == (iteration, stage)
        }

    def note(self, remarks: set[str]) -> None:
        """Keep the new ones."""
        for remark in sorted(remarks - self._given)[: max(0, MOST - len(self._given))]:
            self._given.add(remark)
            detail: Json = {**self._place, "remark": remark}
            self._store.when_there_is_room(partial(self._store.journal.record, REMARK, detail))
