"""Runs side by side on the prompts of each eval set and task."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..lake.query.critic_scores import ALL
from ..lake.query.runs import open_run
from .compare_runs import Result, by_method, measured_scores, results


def results_by_task(
    lake: Path,
    names: Sequence[str],
    *,
    together: bool,
    task: str | None = None,
    methods: Mapping[str, str] | None = None,
) -> dict[str, list[Result]]:
    """Return the results of runs on all held-out prompts, on each set of them, and on each task."""
    if task is not None:
        found = {task: results(lake, names, task=task, methods=methods)}
    else:
        eval_sets, tasks = (_shared_names(lake, names, by) for by in ("eval_set", "task"))
        found = {ALL: results(lake, names, methods=methods)}
        found |= {
            f"eval set {e}": results(lake, names, eval_set=e, methods=methods) for e in eval_sets
        }
        of_task = tasks if len(tasks) > 1 else []
        found |= {name: results(lake, names, task=name, methods=methods) for name in of_task}
    return {name: by_method(of) if together else of for name, of in found.items()}


def _shared_names(lake: Path, names: Sequence[str], by: str) -> list[str]:
    """Return the tasks, or the eval sets, on which each of several runs has measured answers."""
    shared: set[str] | None = None
    for name in names:
        run = open_run(lake, name)
        scored = measured_scores(run).select("prompt_id").unique()
        prompts = run.scan("prompts").select("prompt_id", by).drop_nulls()
        own = prompts.join(scored, on="prompt_id", how="semi").select(by).unique().collect()
        run.close()
        shared = set(own[by]) if shared is None else shared & set(own[by])
    return sorted(shared or ())
