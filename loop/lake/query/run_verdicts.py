"""The verdicts of a run, as its loop committed them: and which policy is the best."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import polars as pl

from ....stores.frames import frame_rows
from ....stores.keys import Json
from ....stores.lake import RunReader
from ....stores.records import Answer, Checkpoint, PolicyStanding, PolicyVerdict
from ...data.splits import DEV, HELD_OUT
from ..statistics.decisions import too_few
from .answer_logprobs import format_survival, update_survival
from .format_figures import (
    figure_label,
    format_bounds,
    format_difference,
    format_level,
    format_value,
)
from .runs import NoSuchRunError

OPPONENTS = ("initial", "previous", "best")


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationVerdict:
    """The status of M_t, and the verdicts on it by all splits and scopes.

    `survival` is the share of its training that its published weights have.
    """

    checkpoint: Checkpoint
    standing: PolicyStanding | None
    rows: tuple[PolicyVerdict, ...]
    survival: float | None = None

    @property
    def answer(self) -> Answer:
        """Whether it is better than the best before it over all prompts, by dev prompts if any."""
        against_best = [r for r in self.rows if r.against == "best" and r.scope == "all"]
        return (
            min(against_best, key=lambda r: r.split != DEV).answer if against_best else "undecided"
        )

    def of(self, split: str, against: str) -> PolicyVerdict | None:
        """Return the verdict by all prompts of a split."""
        found = (r for r in self.rows if (r.split, r.against, r.scope) == (split, against, "all"))
        return next(found, None)

    def regressions(self) -> list[PolicyVerdict]:
        """Return the families whose held-out prompts are worse than M_0's, the worst first."""
        own = (r for r in self.rows if (r.split, r.against) == (HELD_OUT, "initial"))
        worse = [r for r in own if r.scope == "family" and r.high is not None and r.high < 0]
        return sorted(worse, key=lambda r: r.difference)

    def as_json(self) -> dict[str, Json]:
        """Return the fields, for a JSON document."""
        standing = self.standing
        return {
            **checkpoint_names(self.checkpoint),
            "verdict": self.answer,
            "accepted": standing and standing.accepted,
            "reason": standing and standing.reason,
            "best": standing and standing.best_iteration,
            "next": standing and standing.next_iteration,
            "against": {
                against: {
                    split: [_row(r) for r in self.rows if (r.split, r.against) == (split, against)]
                    for split in (DEV, HELD_OUT)
                }
                for against in OPPONENTS
            },
            "lost": [row.name for row in self.regressions()],
            "update_survival": self.survival,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RunVerdict:
    """The standings of the policies of a run."""

    run: str
    latest: Checkpoint
    best: Checkpoint
    iterations: tuple[IterationVerdict, ...]

    def __str__(self) -> str:
        return "\n".join(verdict_lines(self))

    __repr__ = __str__

    def as_json(self) -> dict[str, Json]:
        """Return the fields, for a JSON document."""
        return {
            "run": self.run,
            "best": checkpoint_names(self.best),
            "latest": checkpoint_names(self.latest),
            "decides": DEV,
            "reports": HELD_OUT,
            "iterations": [found.as_json() for found in self.iterations],
        }


def run_verdict(run: RunReader, made: Sequence[Checkpoint]) -> RunVerdict:
    """Return the verdicts on the policies of a run; `made` are its checkpoints in order.

    Raises:
        NoSuchRunError: if the run lacks verdicts.
    """
    standings = {s.iteration: s for s in frame_rows(PolicyStanding, _all(run, "standings"))}
    rows = frame_rows(PolicyVerdict, _all(run, "verdicts"))
    if not rows and not standings:
        raise NoSuchRunError(f"run {run.folder.name} contains no verdicts: {_why(made)}")
    last = standings[max(standings)] if standings else None
    by_number = {checkpoint.iteration: checkpoint for checkpoint in made}
    return RunVerdict(
        run=run.folder.name,
        latest=made[-1],
        best=made[-1] if last is None else by_number[last.best_iteration],
        iterations=tuple(
            IterationVerdict(
                checkpoint=checkpoint,
                standing=standings.get(checkpoint.iteration),
                rows=tuple(row for row in rows if row.iteration == checkpoint.iteration),
                survival=update_survival(run, checkpoint.iteration),
            )
            for checkpoint in made[1:]
        ),
    )


def verdicts_of(run: RunReader, iteration: int, split: str) -> list[PolicyVerdict]:
    """Return all verdicts on M_t by the prompts of a split."""
    own = pl.col("split") == split
    return frame_rows(
        PolicyVerdict, run.scan("verdicts", iteration=iteration).filter(own).collect()
    )


def checkpoint_names(checkpoint: Checkpoint) -> dict[str, Json]:
    """Return how a policy is called in a document."""
    return {"iteration": checkpoint.iteration, "checkpoint": checkpoint.checkpoint_id}


def _all(run: RunReader, table: str) -> pl.DataFrame:
    return run.scan(table).sort("iteration").collect()


def _why(made: Sequence[Checkpoint]) -> str:
    if len(made) < 2:  # noqa: PLR2004 -- M_0 and one more
        return "it has made no policy yet"
    return f"M_{made[-1].iteration} has not been evaluated yet"


def _row(row: PolicyVerdict) -> dict[str, Json]:
    """Return a verdict without the fields that its place in the document gives."""
    told = asdict(row)
    for name in ("iteration", "checkpoint_id", "against", "other_id", "split"):
        del told[name]
    told["other"], told["verdict"] = told.pop("other_iteration"), told.pop("answer")
    return told


def verdict_lines(found: RunVerdict) -> Iterator[str]:
    """Yield the verdicts for a terminal of 80 columns."""
    yield (
        f"run {found.run}: the best is M_{found.best.iteration} "
        f"{found.best.checkpoint_id[:12]}, the latest M_{found.latest.iteration} "
        f"{found.latest.checkpoint_id[:12]}"
    )
    for iteration in found.iterations:
        yield ""
        number = iteration.checkpoint.iteration
        yield iteration.standing.reason if iteration.standing else f"M_{number}"
        yield from (f"  {line}" for line in _verdicts(iteration))
        if iteration.survival is not None:
            yield f"  {format_survival(iteration.survival)}"
        lost = iteration.regressions()
        if lost:
            yield "  lost since M_0, held-out: " + ", ".join(
                f"{row.name} {100 * row.before:.0f} -> {100 * row.after:.0f}" for row in lost
            )


def _verdicts(iteration: IterationVerdict) -> Iterator[str]:
    """Yield the verdicts by all prompts of each split, then by each named set, a line each.

    One policy may be the initial, the previous and the best one: it has one line.
    """
    for split in (DEV, HELD_OUT):
        found = [row for part in OPPONENTS if (row := iteration.of(split, part)) is not None]
        for other in dict.fromkeys(row.other_iteration for row in found):
            of = [row for row in found if row.other_iteration == other]
            yield _line(of[0], ", ".join(row.against for row in of))
    for row in iteration.rows:
        if row.scope == "eval_set":
            yield f"{row.name}: {_line(row, row.against)}"


def _line(row: PolicyVerdict, part: str) -> str:
    """Return a verdict, such as `held-out, against M_0 (initial): better; 34.5 -> 56.4 ...`."""
    needed = f"; about {row.needed:,} prompts would decide" if row.needed is not None else ""
    return (
        f"{row.split}, against M_{row.other_iteration} ({part}): {row.answer}; "
        f"{figure_label(row.figure)} {format_value(row.figure, row.before)} -> "
        f"{format_value(row.figure, row.after)}, {format_verdict(row)}{needed}"
    )


def format_verdict(row: PolicyVerdict) -> str:
    """Return the difference of a verdict with its bounds and their level, or why it is missing."""
    difference = format_difference(row.figure, row.difference)
    if row.low is None or row.high is None:
        return f"{difference} ({too_few(row.n, row.clusters)})"
    level = "" if row.level is None else f", one-sided level {format_level(row.level)} per bound"
    return f"{difference} {format_bounds(row.figure, row.low, row.high)}{level}"
