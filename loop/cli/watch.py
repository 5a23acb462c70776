"""The display of a run in another process, from its journal."""

import time
from dataclasses import dataclass, field

from ...stores.journal_reader import Reader
from ..daemon.control import PAUSED, alive
from ..daemon.progress import Progress, progress
from ..lake.query.runs import ending
from ..run.reporter import Reporter, UnitStats

POLL_S = 0.5
Place = tuple[int, str]
COUNTS = ("rows", "tokens", "prompt_tokens", "calls", "retries", "unscored", "failed")


@dataclass(kw_only=True)
class Watcher:
    """Reports a run's progress from its journal, as a reporter in the run's own process would."""

    reader: Reader
    reporter: Reporter
    _seen: dict[Place, Progress] = field(default_factory=dict[Place, Progress], init=False)
    _shown: set[Place] = field(default_factory=set[Place], init=False)
    _paused: bool = field(default=False, init=False)

    def watch(self) -> str:
        """Report until no process works on the run any more; return how it ended."""
        for stage in self._stages():
            self._seen[stage.iteration, stage.stage] = stage
            if stage.pending:
                self._begin(stage, done=stage.done)
        going_on = alive(self.reader.folder)
        if going_on:
            self.reporter.note(f"watching run {self.reader.folder.name}; Ctrl-C leaves it alone")
        while going_on:
            going_on = alive(self.reader.folder)
            self._look()
            if going_on:
                time.sleep(POLL_S)
        for place in sorted(self._shown):
            self._end(place)
        return self._ending()

    def _stages(self) -> list[Progress]:
        return progress(self.reader, running=True)

    def _look(self) -> None:
        """Report the changes since the last look."""
        for stage in self._stages():
            place = (stage.iteration, stage.stage)
            before = self._seen.get(place)
            self._seen[place] = stage
            if before is not None and before.done == stage.done:
                continue
            if place not in self._shown:
                self._begin(stage, done=0 if before is None else before.done)
            self._advance(before, stage)
            if not stage.pending:
                self._end(place)
        paused = self.reader.meta(PAUSED) == "1"
        if paused != self._paused:
            self.reporter.note("the run is paused" if paused else "the run resumes")
        self._paused = paused

    def _begin(self, stage: Progress, *, done: int) -> None:
        self._shown.add((stage.iteration, stage.stage))
        self.reporter.begin(stage.iteration, stage.stage, planned=stage.planned, done=done)

    def _advance(self, before: Progress | None, now: Progress) -> None:
        """Report the units done since the last look, their sums with the last unit."""
        more = {
            name: getattr(now, name) - (0 if before is None else getattr(before, name))
            for name in COUNTS
        }
        units = now.done - (0 if before is None else before.done)
        for unit in range(units):
            advance = UnitStats(**more) if unit + 1 == units else UnitStats()
            self.reporter.advance(now.iteration, now.stage, advance)

    def _end(self, place: Place) -> None:
        self._shown.remove(place)
        self.reporter.end(*place)

    def _ending(self) -> str:
        why = ending(self.reader) or "it did not end by itself"
        return f"no process works on run {self.reader.folder.name}: {why}"
