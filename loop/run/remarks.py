"""What is odd about a stage's answers or figures: each sentence is in the journal once a stage."""

from functools import partial
from typing import Any, cast

from ...stores.keys import Json
from ...stores.lake import RunWriter

MOST = 20
"""Remarks that are kept of a stage: reasons why requests failed may differ each time."""
REMARK = "remark"
"""The kind of the event: iteration, stage, remark."""


class Remarks:
    """The remarks on a stage's work; what an earlier process kept is not kept again."""

    def __init__(self, store: RunWriter, iteration: int, stage: str) -> None:
        self._store = store
        self._place: dict[str, Json] = {"iteration": iteration, "stage": stage}
        kept = cast("list[dict[str, Any]]", store.journal.events(REMARK))
        self._told = {
            event["remark"]
            for event in kept
            if (event["iteration"], event["stage"]) == (iteration, stage)
        }

    def note(self, remarks: set[str]) -> None:
        """Keep those that are new."""
        for remark in sorted(remarks - self._told)[: max(0, MOST - len(self._told))]:
            self._told.add(remark)
            detail: Json = {**self._place, "remark": remark}
            self._store.when_there_is_room(partial(self._store.journal.record, REMARK, detail))
