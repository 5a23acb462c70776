"""The display of a run: live on a terminal, plain lines elsewhere, tables at the end."""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich import box
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
from rich.table import Table

from ...stores.records import Evaluation
from ..data.sanitize import one_line, visible
from ..lake.query.critic_scores import ALL, DRAFTS
from ..lake.query.forgetting import FALL, FALL_OVERALL, PASSED, PREFIX, alarming, is_probe
from ..run.reporter import Advance

LONGEST_STAGE = 80
EVERY_S = 60.0
"""How often a plain log says how far a long stage is."""
_Place = tuple[int, str]
"""A stage, by its iteration and its name."""
Column = tuple[str, str, float, int]
"""A metric, its heading, the factor to show it by, and its decimals."""
VERIFIED: tuple[Column, ...] = (
    ("math_accuracy", "Math", 100.0, 1),
    ("fact_score", "Facts", 100.0, 1),
    ("general_fulfilled", "General", 100.0, 1),
    ("json_valid", "JSON", 100.0, 1),
    ("self_identified", "Identity", 100.0, 1),
    ("mean_length", "Length", 1.0, 1),
)
ASSESSED: tuple[Column, ...] = (
    ("win_rate", "Win-rate", 100.0, 1),
    ("length_controlled_win_rate", "LC", 100.0, 1),
    ("true_score", "True", 1.0, 3),
    ("reward", "Reward", 1.0, 3),
    ("kl", "KL to M_0", 1.0, 2),
)


CRITIC = {
    "approval": "passed",
    "verified": "right",
    "precision": "precision",
    "recall": "recall",
    "auroc": "ratings",
    "reward_auroc": "reward",
}
"""The figures of a critic, with their headings: of ratings and rewards it is the AUROC."""
TASK = 24


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


def duration(seconds: float | None) -> str:
    """Return a duration for a table; None means unknown."""
    if seconds is None:
        return "?"
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    if hours:
        return f"{hours}:{minutes:02}:{rest:02.0f}"
    return f"{minutes}:{rest:02.0f}" if minutes else f"{rest:.1f} s"


def _title(iteration: int, stage: str) -> str:
    return f"iteration {iteration}  {one_line(stage, limit=LONGEST_STAGE)}"


def results_tables(evaluations: Sequence[Evaluation]) -> list[Table]:
    """Return the tables of M_0, M_1, ...: verified, assessed and probed metrics."""
    measured = [e for e in evaluations if not is_probe(e.benchmark)]
    probed = [e for e in evaluations if is_probe(e.benchmark)]
    assessed = {metric for metric, *_ in ASSESSED} & {e.metric for e in measured}
    tables = list[Table]()
    if measured:
        tables.append(
            _results_table(measured, VERIFIED, "Held-out results (mean ± standard error)")
        )
    if assessed:
        tables.append(_results_table(measured, ASSESSED, "Assessed"))
    if probed:
        tables.append(_probes_table(probed))
    return tables


def _probes_table(probed: Sequence[Evaluation]) -> Table:
    """Return a table of the share of each probe passed; falls that raise an alarm are marked."""
    table = Table(
        title="Probes passed, in percent (fell: alarm, by more than its standard error)",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    by_name = {(e.iteration, e.benchmark, e.metric): e for e in probed}
    probes = sorted({e.benchmark for e in probed})
    table.add_column("Model", no_wrap=True)
    for probe in probes:
        table.add_column(escape(probe.removeprefix(PREFIX)), justify="right")
    for iteration in sorted({e.iteration for e in probed}):
        cells = list[str]()
        for probe in probes:
            lost = [by_name.get((iteration, probe, metric)) for metric in (FALL, FALL_OVERALL)]
            alarms = [e for e in lost if e is not None and alarming(e)]
            fell = f", fell {_cell(alarms[-1], 100.0, 1)}" if alarms else ""
            cells.append(_cell(by_name.get((iteration, probe, PASSED)), 100.0, 1) + fell)
        table.add_row(f"M_{iteration}", *cells)
    return table


def critic_tables(iterations: Sequence[Mapping[str, Any]]) -> list[Table]:
    """Return the table of what the critic is worth by task and model, if anything tells.

    `iterations` are those of a run's status.
    """
    scores: list[dict[str, Any]] = [
        {"answers": _answers_of(turn["iteration"], score["benchmark"]), **score}
        for turn in iterations
        for score in turn["critic"]
    ]
    if not scores:
        return []
    table = Table(
        title="The critic against the verifier, in percent (last: AUROC of ratings and reward)",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    shares = [name for name in CRITIC if any(score[name] is not None for score in scores)]
    for heading in ("Task", "Answers"):
        table.add_column(heading, no_wrap=True)
    for heading in ("n", *(CRITIC[name] for name in shares)):
        table.add_column(heading, justify="right", no_wrap=True)
    for score in sorted(scores, key=lambda s: (s["task"] == ALL, s["task"], s["benchmark"])):
        of = (escape(one_line(score["task"], limit=TASK)), score["answers"])
        table.add_row(*of, f"{score['n']:,}", *(_percent(score[name]) for name in shares))
    return [table]


def _answers_of(iteration: int, benchmark: str) -> str:
    """Say whose answers were judged: those of M_t, or the drafts of iteration t."""
    return f"{DRAFTS} {iteration}" if benchmark == DRAFTS else f"M_{iteration}, {benchmark}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def _results_table(evaluations: Sequence[Evaluation], named: Sequence[Column], title: str) -> Table:
    """Return a table of some metrics in the form of the paper's Table 2, with their errors."""
    table = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0)
    )
    table.add_column("Model", no_wrap=True)
    by_name = {(e.iteration, e.metric): e for e in evaluations}
    metrics = {e.metric for e in evaluations}
    columns = [column for column in named if column[0] in metrics]
    for _, heading, *_ in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    for iteration in sorted({e.iteration for e in evaluations}):
        cells = [
            _cell(by_name.get((iteration, name)), scale, decimals)
            for name, _, scale, decimals in columns
        ]
        table.add_row(f"M_{iteration}", *cells)
    return table


def _cell(evaluation: Evaluation | None, scale: float, decimals: int) -> str:
    if evaluation is None:
        return "-"
    error = "" if evaluation.stderr is None else f" ±{evaluation.stderr * scale:.{decimals}f}"
    return f"{evaluation.value * scale:.{decimals}f}{error}"
