"""The display of a run: a line for each phase of an iteration, and the progress of present phases.

Long stages show a bar on a terminal, and a line each 30 s elsewhere. Bookkeeping, such as keeping
prompts, is in the run's log alone.
"""

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

from ...stores.keys import Json
from ...stores.side_evals import smoke_test_of
from ..data.stage_names import is_eval_set
from ..data.text import duration, one_line, visible
from ..run.reporter import EVERY_S, UnitStats

LONGEST_STAGE = 80
ROOMY = 120
"""From this width on, a bar and the name of its stage may be long."""
TITLE, BAR = 38, 24
NARROW_TITLE, NARROW_BAR = 28, 6
BOOKKEEPING = frozenset(
    {
        *("prompts", "initial", "unchanged", "reward", "measure", "watch", "verdict", "choose"),
        *("probe", "labels", "given", "answers", "best_of_n", "best_of_fewer"),
    }
)
"""The verbs of stages whose end is not printed."""
NOUNS = {
    "critique": "critiques",
    "grade": "grades",
    "annotate": "comparisons",
    "pair": "pairs",
    "binarise": "pairs",
    "prefer": "pairs",
    "train": "steps",
    "train_reward": "steps",
}
"""The product of a verb, if it makes something else than answers."""
Place = tuple[int, str]
"""A stage, by its iteration and its name."""


@dataclass(kw_only=True)
class _Tally:
    """The work of a stage in this process."""

    title: str
    planned: int
    before: int
    now: Callable[[], float]
    started: float = field(init=False)
    done: int = field(init=False)
    made: UnitStats = field(default_factory=UnitStats)
    work: str = ""
    left_s: float | None = None
    details: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.started, self.done = self.now(), self.before

    def add(self, advance: UnitStats) -> None:
        self.done += 1
        self.made += advance
        self.work, self.left_s = "", None

    @property
    def seconds(self) -> float:
        return max(self.now() - self.started, 1e-9)

    @property
    def figures(self) -> list[str]:
        """The numbers behind the count and the time of a line."""
        found = list[str]()
        if self.made.tokens:
            found.append(f"{self.made.tokens / self.seconds:,.0f} tokens/s")
        if self.made.unscored:
            found.append(f"{self.made.unscored:,} unscored")
        if self.made.failed:
            found.append(f"{self.made.failed:,} failed")
        if self.before:
            found.append(f"{self.before} units re-used")
        return [*found, *self.details]

    @property
    def progress(self) -> str:
        """How far the stage is, and the estimated time left if there is one."""
        left, new = self.left_s, self.done - self.before
        if left is None and new:
            left = self.seconds / new * (self.planned - self.done)
        outlook = "" if left is None else f", about {duration(left)} to go"
        rows = f"{self.made.rows:,} rows so far" if new else "the first unit, or models still load"
        return f"{self.work or rows}{outlook}"


@dataclass(kw_only=True)
class _Evaluation:
    """The evaluation of an iteration's policy: several stages that have one line."""

    started: float
    answers: int = 0
    warnings: list[str] = field(default_factory=list[str])


class LineReporter:
    """Prints a line at the end of each phase, and for each event."""

    def __init__(self, console: Console, now: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._now = now
        self._stages: dict[Place, _Tally] = {}
        self._titles: dict[int, str] = {}
        self._evaluations: dict[int, _Evaluation] = {}
        self._iteration: int | None = None

    def begin(self, iteration: int, stage: str, *, planned: int, done: int) -> None:
        """Begin to count the work of a stage."""
        title = one_line(stage, limit=LONGEST_STAGE)
        tally = _Tally(title=title, planned=planned, before=done, now=self._now)
        self._stages[iteration, stage] = tally
        if done < planned:
            self._end_evaluations(iteration)
            if is_eval_set(stage):
                self._evaluations.setdefault(iteration, _Evaluation(started=tally.started))

    def advance(self, iteration: int, stage: str, advance: UnitStats) -> None:
        """Add a unit's counts."""
        self._stages[iteration, stage].add(advance)

    def working(self, iteration: int, stage: str, text: str, left_s: float | None) -> None:
        """Remember how far a unit is."""
        tally = self._stages[iteration, stage]
        tally.work, tally.left_s = text, left_s

    def end(self, iteration: int, stage: str) -> None:
        """Print the results of a stage in this process, if it was work."""
        tally, verb = self._stages.pop((iteration, stage)), stage.partition(":")[0]
        if is_eval_set(stage):
            if verb == "evaluate" and iteration in self._evaluations:
                self._evaluations[iteration].answers += tally.made.rows
        elif tally.done > tally.before and verb not in BOOKKEEPING and smoke_test_of(stage) is None:
            name = tally.title.removesuffix(":sample")
            made = f"{tally.made.rows:,} {NOUNS.get(verb, 'answers')}"
            if tally.done < tally.planned:
                made += f", {tally.done} of {tally.planned} units"
            self._print_phase(iteration, name, made, tally.seconds, tally.figures)

    def note(self, text: str, event: str = "note", **fields: Json) -> None:
        """Print an event, or put it at the end of the line that it belongs to."""
        iteration = fields.get("iteration")
        number = iteration if isinstance(iteration, int) else None
        if event == "iteration" and number is not None:
            self._titles[number] = text
        elif event == "phase" and (stage := self._stages.get((number or 0, str(fields["stage"])))):
            stage.details.append(text)
        elif event == "score" and number is not None:
            self._end_evaluation(number, text)
        elif "code" in fields:
            severity = "stop" if fields.get("severity") == "stop" else "warning"
            line = f"  {severity} {fields['code']}: {text}"
            pending = None if number is None else self._evaluations.get(number)
            if pending is None:
                self._print(line)
            else:
                pending.warnings.append(line)
        else:
            self._print(text if self._iteration is None else f"  {text}")

    def close(self) -> None:
        """Print the rest."""
        self._end_evaluations(None)

    def _end_evaluations(self, iteration: int | None) -> None:
        """Print the evaluations of other iterations, whose score was not reported."""
        for number in [*self._evaluations]:
            if number != iteration:
                self._end_evaluation(number)

    def _end_evaluation(self, iteration: int, score: str = "") -> None:
        evaluation = self._evaluations.pop(iteration, None)
        if evaluation is None:
            return
        if evaluation.answers or score:
            seconds, made = self._now() - evaluation.started, f"{evaluation.answers:,} answers"
            self._print_phase(iteration, "evaluate", made, seconds, [score] if score else [])
        for line in evaluation.warnings:
            self._print(line)

    def _print_phase(
        self, iteration: int, name: str, made: str, seconds: float, figures: list[str]
    ) -> None:
        if iteration != self._iteration:
            self._iteration = iteration
            self._print(self._titles.get(iteration, f"iteration {iteration}"))
        line = f"  {name:<18} {made:<18} {duration(seconds):>8}   {', '.join(figures)}"
        self._print(line.rstrip())

    def _print(self, text: str) -> None:
        self._console.print(visible(text), markup=False, highlight=False, soft_wrap=True)


class LiveReporter(LineReporter):
    """Shows a bar for each stage under way, below the lines."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._title, bar = (TITLE, BAR) if console.width >= ROOMY else (NARROW_TITLE, NARROW_BAR)
        self._progress = Progress(
            TextColumn(f"{{task.description:<{self._title}}}"),
            BarColumn(bar_width=bar),
            MofNCompleteColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            # A text that is too long is cut here, after the clock.
            TextColumn(
                "{task.fields[summary]}",
                table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
            ),
            console=console,
            expand=True,
            transient=True,
        )
        self._bars: dict[Place, TaskID] = {}
        self._progress.start()

    def begin(self, iteration: int, stage: str, *, planned: int, done: int) -> None:
        """Add a bar for the stage."""
        super().begin(iteration, stage, planned=planned, done=done)
        title = f"iteration {iteration}  {self._stages[iteration, stage].title}"
        shown = title if len(title) <= self._title else f"{title[: self._title - 1]}…"
        self._bars[iteration, stage] = self._progress.add_task(
            escape(shown), total=planned, completed=done, summary=""
        )

    def advance(self, iteration: int, stage: str, advance: UnitStats) -> None:
        """Move the stage's bar by one unit."""
        super().advance(iteration, stage, advance)
        tally = self._stages[iteration, stage]
        summary = ", ".join((f"{tally.made.rows:,} rows", *tally.figures))
        self._progress.update(self._bars[iteration, stage], advance=1, summary=summary)

    def working(self, iteration: int, stage: str, text: str, left_s: float | None) -> None:
        """Show the progress of a unit next to the stage's bar."""
        super().working(iteration, stage, text, left_s)
        summary = self._stages[iteration, stage].progress
        self._progress.update(self._bars[iteration, stage], summary=summary)

    def end(self, iteration: int, stage: str) -> None:
        """Replace the stage's bar by its line."""
        self._progress.remove_task(self._bars.pop((iteration, stage)))
        super().end(iteration, stage)

    def close(self) -> None:
        """Stop redrawing."""
        self._progress.stop()
        super().close()


class PlainReporter(LineReporter):
    """Prints a line each 30 s of a long stage, too: for logs and pipes.

    `now` is the clock, `wait` waits for an event or for seconds and returns whether the event came.
    """

    def __init__(
        self,
        console: Console,
        *,
        now: Callable[[], float] = time.monotonic,
        wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
    ) -> None:
        super().__init__(console, now)
        self._wait = wait
        self._over: dict[Place, threading.Event] = {}
        self._speaking = threading.Lock()

    def begin(self, iteration: int, stage: str, *, planned: int, done: int) -> None:
        """Begin to count, and to print from time to time how far the stage is."""
        super().begin(iteration, stage, planned=planned, done=done)
        over, tally = threading.Event(), self._stages[iteration, stage]
        self._over[iteration, stage] = over
        threading.Thread(target=self._print_progress, args=(tally, over), daemon=True).start()

    def _print_progress(self, tally: _Tally, over: threading.Event) -> None:
        while not self._wait(over, EVERY_S):
            with self._speaking:
                if not over.is_set():
                    counts = f"{tally.done} of {tally.planned} units"
                    self._print(f"    {tally.title}: {counts}, {tally.progress}")

    def end(self, iteration: int, stage: str) -> None:
        """Print the stage's results."""
        with self._speaking:
            self._over.pop((iteration, stage)).set()
            super().end(iteration, stage)

    def close(self) -> None:
        """Stop printing."""
        for over in self._over.values():
            over.set()
        super().close()
