"""What was odd about endpoints' answers, kept in the journal: each sentence once a stage."""

from functools import partial
from typing import Any, cast

from ...stores.keys import Json
from .run import Run, Stage

REMARK = "remark"
"""The kind of the event: iteration, stage, remark."""


class Remarks:
    """The remarks on a stage's answers; what an earlier process kept is not kept again."""

    def __init__(self, run: Run, stage: Stage) -> None:
        self._store = run.store
        self._iteration, self._stage = stage.planned.iteration, stage.planned.stage
        kept = cast("list[dict[str, Any]]", run.store.journal.events(REMARK))
        own = (self._iteration, self._stage)
        self._told = {e["remark"] for e in kept if (e["iteration"], e["stage"]) == own}

    def note(self, remarks: set[str]) -> None:
        """Keep those that are new."""
        for remark in sorted(remarks - self._told):
            self._told.add(remark)
            detail: Json = {"iteration": self._iteration, "stage": self._stage, "remark": remark}
            self._store.when_there_is_room(partial(self._store.journal.record, REMARK, detail))
