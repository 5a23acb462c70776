"""The display of a run: live on a terminal, plain lines elsewhere."""

import threading
import time
from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from ..data.durations import duration
from ..data.sanitize import one_line, visible
from ..run.reporter import Advance

LONGEST_STAGE = 80
EVERY_S = 60.0
"""How often a plain log says how far a long stage is."""
_Place = tuple[int, str]
"""A stage, by its iteration and its name."""


@dataclass(kw_only=True)
class _Tally:
    """What a stage has done in this process."""

    title: str
    planned: int
    done: int
    before: int
    started: float = field(default_factory=time.monotonic)
    rows: int = 0
    tokens: int = 0
    unscored: int = 0

    def add(self, advance: Advance) -> None:
        self.done += 1
        self.rows += advance.rows
        self.tokens += advance.tokens
        self.unscored += advance.unscored

    @property
    def seconds(self) -> float:
        return max(time.monotonic() - self.started, 1e-9)

    @property
    def outlook(self) -> str:
        """How long the rest will take, if that is known, of a stage that goes on."""
        made = self.done - self.before
        if not made:
            return " so far"
        left = self.seconds / made * (self.planned - self.done)
        return f" so far, about {duration(left)} to go"

    def line(self, end: str) -> str:
        """Say on one line what was done."""
        counts = f"{self.done}/{self.planned} units"
        return f"{self.title:<34} {counts}, {self.summary}, {self.seconds:.1f} s{end}"

    @property
    def summary(self) -> str:
        parts = [f"{self.rows:,} rows"]
        if self.tokens:
            parts.append(f"{self.tokens / self.seconds:,.0f} tokens/s")
        if self.unscored:
            parts.append(f"unscored {self.unscored / max(self.rows, 1):.1%}")
        if self.before:
            parts.append(f"{self.before} units re-used")
        return ", ".join(parts)


class LiveReporter:
    """A bar for each stage, with rows, tokens/s, the unscored share and the time to go."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description:<34}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[summary]}"),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
        )
        self._bars: dict[_Place, tuple[_Tally, TaskID]] = {}
        self._progress.start()

    def begin(self, iteration: int, stage: str, *, planned: int, done: int) -> None:
        """Add a bar for the stage."""
        title = _title(iteration, stage)
        tally = _Tally(title=title, planned=planned, done=done, before=done)
        task = self._progress.add_task(
            escape(title), total=planned, completed=done, summary=tally.summary
        )
        self._bars[iteration, stage] = (tally, task)

    def advance(self, iteration: int, stage: str, advance: Advance) -> None:
        """Move the stage's bar by one unit."""
        tally, task = self._bars[iteration, stage]
        tally.add(advance)
        self._progress.update(task, advance=1, summary=tally.summary)

    def end(self, iteration: int, stage: str) -> None:
        """Finish the stage's bar."""
        del self._bars[iteration, stage]

    def note(self, text: str) -> None:
        """Print a sentence above the bars."""
        self._progress.console.print(visible(text), markup=False, highlight=False)

    def close(self) -> None:
        """Stop redrawing."""
        self._progress.stop()


class PlainReporter:
    """Prints a line at the end of each stage, and each minute of a long one: for logs and pipes."""

    def __init__(self, console: Console, *, every_s: float = EVERY_S) -> None:
        self._console = console
        self._every_s = every_s
        self._stages: dict[_Place, tuple[_Tally, threading.Event]] = {}

    def begin(self, iteration: int, stage: str, *, planned: int, done: int) -> None:
        """Remember the stage, and say from time to time how far it is."""
        title = _title(iteration, stage)
        tally = _Tally(title=title, planned=planned, done=done, before=done)
        over = threading.Event()
        self._stages[iteration, stage] = (tally, over)
        threading.Thread(target=self._tell, args=(tally, over), daemon=True).start()

    def _tell(self, tally: _Tally, over: threading.Event) -> None:
        while not over.wait(self._every_s):
            self.note(tally.line(tally.outlook))

    def advance(self, iteration: int, stage: str, advance: Advance) -> None:
        """Count a unit."""
        self._stages[iteration, stage][0].add(advance)

    def end(self, iteration: int, stage: str) -> None:
        """Print what the stage did."""
        tally, over = self._stages.pop((iteration, stage))
        over.set()
        self.note(tally.line(""))

    def note(self, text: str) -> None:
        """Print a sentence."""
        self._console.print(visible(text), markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Say nothing more."""
        for _, over in self._stages.values():
            over.set()


def _title(iteration: int, stage: str) -> str:
    return f"iteration {iteration}  {one_line(stage, limit=LONGEST_STAGE)}"
