"""Warnings about a run's endpoints: changed models, unusual replies."""

from collections.abc import Mapping
from typing import Any, cast

from ....stores.journal_reader import Reader, Serving
from ...run.run_warnings import REMARK

SHOWN = 3
"""How many reported identities of an endpoint are listed."""


def warnings(journal: Reader) -> list[str]:
    """Return a sentence for each model that changed while the run asked it, and for each remark."""
    return [*_changes(journal), *_remarks(journal)]


def _changes(journal: Reader) -> list[str]:
    by_model: dict[str, dict[tuple[int, str], list[Serving]]] = {}
    for serving in journal.serving_reports():
        stages = by_model.setdefault(str(serving.report.get("asked")), {})
        stages.setdefault((serving.iteration, serving.stage), []).append(serving)
    return [
        change for model, stages in by_model.items() for change in _model_changes(model, stages)
    ]


def _model_changes(model: str, stages: Mapping[tuple[int, str], list[Serving]]) -> list[str]:
    """Return the changes of a model: stages whose endpoints report another model than before."""
    found = list[str]()
    before: list[str] = []
    for (iteration, stage), servings in stages.items():
        now = [_name_of(serving) for serving in servings]
        where = f"in {stage} of iteration {iteration}"
        if before and set(now) != set(before):
            found.append(f"{model} changed {where}: from {_join_some(before)} to {_join_some(now)}")
        elif not before and len(now) > 1:
            found.append(f"{model} changed {where}: {_join_some(now)}")
        before = now
    return found


def _name_of(serving: Serving) -> str:
    model = str(serving.report.get("model") or "a model without a name")
    fingerprint = serving.report.get("system_fingerprint")
    return f"{model} ({fingerprint})" if fingerprint else model


def _join_some(parts: list[str]) -> str:
    more = len(parts) - SHOWN
    return " and ".join(parts[:SHOWN]) + (f" and {more} others" if more > 0 else "")


def _remarks(journal: Reader) -> list[str]:
    """Return each remark once, with the stages that it is about."""
    about: dict[str, list[str]] = {}
    for event in cast("list[dict[str, Any]]", journal.events(REMARK)):
        where = f"{event['stage']} of iteration {event['iteration']}"
        about.setdefault(str(event["remark"]), []).append(where)
    return [f"{remark} (in {_join_some(stages)})" for remark, stages in about.items()]
