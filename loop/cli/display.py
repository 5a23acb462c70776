"""The display of a run: live on a terminal, plain lines elsewhere."""

import threading
import time
from collections.abc import Callable
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
from rich.table import Column

from ..data.durations import duration
from ..data.sanitize import one_line, visible
from ..run.reporter import EVERY_S, Advance

LONGEST_STAGE = 80
ROOMY = 120
"""From this width on, a bar and the name of its stage may be long."""
TITLE, BAR = 38, 24
NARROW_TITLE, NARROW_BAR = 28, 6
_Place = tuple[int, str]
"""A stage, by its iteration and its name."""


@dataclass(kw_only=True)
class _Tally:
    """What a stage has done in this process."""

    title: str
    planned: int
    done: int
    before: int
    now: Callable[[], float] = time.monotonic
    started: float = field(init=False)
    rows: int = 0
    tokens: int = 0
    unscored: int = 0
    work: str = ""
    left_s: float | None = None

    def __post_init__(self) -> None:
        self.started = self.now()

    def add(self, advance: Advance) -> None:
        self.done += 1
        self.rows += advance.rows
        self.tokens += advance.tokens
        self.unscored += advance.unscored
        self.work, self.left_s = "", None

    @property
    def seconds(self) -> float:
        return max(self.now() - self.started, 1e-9)

    @property
    def outlook(self) -> str:
        """How long the rest will take, if that is known, of a stage that goes on."""
        made, left = self.done - self.before, self.left_s
        if left is None and made:
            left = self.seconds / made * (self.planned - self.done)
        return " so far" if left is None else f" so far, about {duration(left)} to go"

    def line(self, end: str) -> str:
        """Say on one line what was done."""
        counts = f"{self.done}/{self.planned} units"
        return f"{self.title:<34} {counts}, {self.summary}, {self.seconds:.1f} s{end}"

    @property
    def summary(self) -> str:
        parts = [self.work or f"{self.rows:,} rows"]
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
        self._title, bar = (TITLE, BAR) if console.width >= ROOMY else (NARROW_TITLE, NARROW_BAR)
        self._progress = Progress(
            TextColumn(f"{{task.description:<{self._title}}}"),
            BarColumn(bar_width=bar),
            MofNCompleteColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            # What there is no room for is cut here, behind the clock.
            TextColumn(
                "{task.fields[summary]}",
                table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
            ),
            console=console,
            expand=True,
        )
        self._bars: dict[_Place, tuple[_Tally, TaskID]] = {}
        self._progress.start()

    def begin(self, iteration: int, stage: str, *, planned: int, done: int) -> None:
        """Add a bar for the stage."""
        title = _title(iteration, stage)
        tally = _Tally(title=title, planned=planned, done=done, before=done)
        shown = title if len(title) <= self._title else f"{title[: self._title - 1]}…"
        task = self._progress.add_task(
            escape(shown), total=planned, completed=done, summary=tally.summary
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

    def working(self, iteration: int, stage: str, text: str, left_s: float | None) -> None:
        """Show beside the stage's bar how far a unit is."""
        tally, task = self._bars[iteration, stage]
        tally.work, tally.left_s = text, left_s
        clock = "" if left_s is None else f", about {duration(left_s)} to go"
        self._progress.update(task, summary=f"{text}{clock}")

    def note(self, text: str) -> None:
        """Print a sentence above the bars."""
        self._progress.console.print(visible(text), markup=False, highlight=False)

    def close(self) -> None:
        """Stop redrawing."""
        self._progress.stop()


class PlainReporter:
    """Prints a line at the end of each stage, and each 30 s of a long one: for logs and pipes.

    `now` is the clock, `wait` waits for an event or for seconds and says whether the event came.
    """

    def __init__(
        self,
        console: Console,
        *,
        now: Callable[[], float] = time.monotonic,
        wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
    ) -> None:
        self._console = console
        self._now = now
        self._wait = wait
        self._stages: dict[_Place, tuple[_Tally, threading.Event]] = {}
        self._speaking = threading.Lock()

    def begin(self, iteration: int, stage: str, *, planned: int, done: int) -> None:
        """Remember the stage, and say from time to time how far it is."""
        title = _title(iteration, stage)
        tally = _Tally(title=title, planned=planned, done=done, before=done, now=self._now)
        over = threading.Event()
        self._stages[iteration, stage] = (tally, over)
        threading.Thread(target=self._tell, args=(tally, over), daemon=True).start()

    def _tell(self, tally: _Tally, over: threading.Event) -> None:
        while not self._wait(over, EVERY_S):
            with self._speaking:
                if not over.is_set():
                    self.note(tally.line(tally.outlook))

    def advance(self, iteration: int, stage: str, advance: Advance) -> None:
        """Count a unit."""
        self._stages[iteration, stage][0].add(advance)

    def end(self, iteration: int, stage: str) -> None:
        """Print what the stage did."""
        tally, over = self._stages.pop((iteration, stage))
        with self._speaking:
            over.set()
            self.note(tally.line(""))

    def working(self, iteration: int, stage: str, text: str, left_s: float | None) -> None:
        """Remember how far a unit is, for the stage's next line."""
        tally, _ = self._stages[iteration, stage]
        tally.work, tally.left_s = text, left_s

    def note(self, text: str) -> None:
        """Print a sentence."""
        self._console.print(visible(text), markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Say nothing more."""
        for _, over in self._stages.values():
            over.set()


def _title(iteration: int, stage: str) -> str:
    return f"iteration {iteration}  {one_line(stage, limit=LONGEST_STAGE)}"
