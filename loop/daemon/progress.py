"""A run's progress by stage, its spending, and the work of its roles, for `status` and `watch`."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from ...configs.schema import BudgetConfig
from ...policies.trainers.job import ONLINE
from ...policies.trainers.work_folder import STEPS, TrainingPace, training_pace
from ...stores.journal_reader import Cost, Reader, StageState
from ...stores.keys import Json
from ...stores.sealed import size_of
from ..run.stop import STAGE, START
from .plan import TRAININGS

ITSELF = "lpfloop itself"
ROLE_OF: Mapping[str, str] = {
    **dict.fromkeys(("sample", "refine", "evaluate", "kl-sample", "logprob", "kl"), "policy"),
    "critique": "critic",
    "reward": "reward",
    **dict.fromkeys(("annotate", "compare"), "annotation"),
    "complete": "completion",
    "grade": "grading",
    "score_answers": "assessment.judge",
    **dict.fromkeys(("review", "prompts:review", "prompts:quality"), "prompts.quality"),
    **dict.fromkeys(("train", "train_reward", "step", *ONLINE), "training"),
}
"""The role that works in a stage, by its name or the first word of that; else lpfloop itself."""
COUNTS = ("rows", "unscored", "retries", "failed", "calls", "prompt_tokens", "tokens")
"""The sums of a stage's units that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A stage: units planned, done and pending (`pending`), and the sums over those done.

    `rate` is tokens per second. `seconds` is wall time of all processes that worked on it; `eta_s`
    extrapolates it to the pending units, and is None before the first measurement. `training` is
    the progress of a training under way.
    """

    iteration: int
    stage: str
    planned: int
    done: int
    pending: int
    rows: int
    unscored: int
    retries: int
    failed: int
    calls: int
    prompt_tokens: int
    tokens: int
    seconds: float
    rate: float | None
    eta_s: float | None
    training: TrainingPace | None = None


def progress(reader: Reader, *, running: bool) -> list[Progress]:
    """Return the progress of each planned stage, in the order of planning.

    `running`: a process works on the run, so that the time of its present stages counts, too.
    """
    begun, pace, found = dict[tuple[int, str], float](), None, list[Progress]()
    if running:
        events = cast("list[dict[str, Any]]", reader.events(STAGE, after=START))
        begun = {(event["iteration"], event["stage"]): float(event["at"]) for event in events}
        pace = _training(reader.folder)
    now = time.time()
    for state in reader.stages():
        at = begun.get((state.iteration, state.stage), now)
        stage = _progress(state, max(now - at, 0.0))
        if pace is not None and stage.pending and stage.stage in TRAININGS:
            stage = replace(stage, training=pace, eta_s=pace.eta_s)
        found.append(stage)
    return found


def _training(folder: Path) -> TrainingPace | None:
    """Return how far the training is that wrote a step last."""
    with suppress(FileNotFoundError):  # A training that has just ended takes its folder with it.
        files = (folder / "work").glob(f"*/{STEPS}")
        last = max(files, key=lambda file: file.stat().st_mtime, default=None)
        return None if last is None else training_pace(last.parent)
    return None


def wall_seconds(reader: Reader, stages: Sequence[Progress]) -> float:
    """Return the time in which at least one of a run's stages was under way."""
    # A process that works on the run may have planned another stage since `stages` were read.
    kept = {(state.iteration, state.stage): state.seconds for state in reader.stages()}
    begun = (s.seconds - kept.get((s.iteration, s.stage), s.seconds) for s in stages)
    return reader.seconds() + max(0.0, *begun, 0.0)


def _progress(state: StageState, more: float) -> Progress:
    """Sum up a stage, with `more` seconds of work that the journal does not have yet."""
    seconds = state.seconds + (more if state.done < state.planned else 0.0)
    counts = {name: int(state.totals.get(name, 0)) for name in COUNTS}
    tokens, pending = counts["tokens"], state.planned - state.done
    known = state.done > 0 and seconds > 0
    return Progress(
        iteration=state.iteration,
        stage=state.stage,
        planned=state.planned,
        done=state.done,
        pending=pending,
        **counts,
        seconds=round(seconds, 3),
        rate=round(tokens / seconds, 1) if tokens and seconds > 0 else None,
        eta_s=round(pending * seconds / state.done, 1) if known else None if pending else 0.0,
        training=None,
    )


def spend(reader: Reader, budget: BudgetConfig) -> dict[str, Json]:
    """Return the spending and the limits of a run, by the names of the budget's fields."""
    spent: Cost = reader.total_cost()
    hours = reader.seconds() / 3600
    used: dict[str, float] = {
        "tokens": spent.tokens,
        "judge_calls": spent.judge_calls,
        "money": round(spent.money, 6),
        "hours": round(hours, 4),
        "disk_gib": round(size_of(reader.folder) / (1 << 30), 6),
    }
    limits = budget.model_dump()
    return {name: {"used": value, "limit": limits[name]} for name, value in used.items()}


def busy(stages: Sequence[Progress], wall_s: float) -> dict[str, Json]:
    """Return how each role worked in `wall_s` seconds of a run, the busiest first.

    A role works while one of its stages is under way. Parallel stages share the wall time, so the
    shares can sum up to more than 1; a stage that waits for another one's rows counts as work.
    """
    worked: dict[str, list[Progress]] = {}
    for stage in stages:
        if stage.seconds > 0:
            verb = stage.stage.partition(":")[0]
            role = ROLE_OF.get(stage.stage) or ROLE_OF.get(verb, ITSELF)
            worked.setdefault(role, []).append(stage)
    times = {role: sum(stage.seconds for stage in own) for role, own in worked.items()}
    roles: list[Json] = [
        {
            "role": role,
            "seconds": round(times[role], 3),
            "share": round(min(1.0, times[role] / wall_s), 3) if wall_s else 0.0,
            "calls": sum(stage.calls for stage in worked[role]),
            "tokens": sum(stage.tokens for stage in worked[role]),
            "calls_per_s": round(sum(stage.calls for stage in worked[role]) / times[role], 3),
            "tokens_per_s": round(sum(stage.tokens for stage in worked[role]) / times[role], 1),
        }
        for role in sorted(times, key=lambda role: -times[role])
    ]
    return {"wall_s": round(wall_s, 3), "roles": roles}
