"""Runs side by side on the prompts of each task."""

from collections.abc import Sequence
from pathlib import Path

from ..lake.query.critic_scores import ALL
from ..lake.query.runs import open_run
from .compare_runs import Result, by_method, measured_scores, results


def results_by_task(
    lake: Path, names: Sequence[str], *, together: bool, task: str | None = None
) -> dict[str, list[Result]]:
    """Return the results of runs on all held-out prompts, and on those of each task."""
    tasks = [task] if task is not None else _tasks(lake, names)
    asked: list[tuple[str, str | None]] = [] if task is not None else [(ALL, None)]
    asked += [(one, one) for one in (tasks if len(tasks) > 1 or task is not None else [])]
    found = {name: results(lake, names, task=one) for name, one in asked}
    return {name: by_method(of) if together else of for name, of in found.items()}


def _tasks(lake: Path, names: Sequence[str]) -> list[str]:
    """Return the tasks on which each of several runs has measured answers."""
    shared: set[str] | None = None
    for name in names:
        run = open_run(lake, name)
        scored = measured_scores(run).select("prompt_id").unique()
        prompts = run.scan("prompts").select("prompt_id", "task")
        own = prompts.join(scored, on="prompt_id", how="semi").select("task").unique().collect()
        run.close()
        shared = set(own["task"]) if shared is None else shared & set(own["task"])
    return sorted(shared or ())
