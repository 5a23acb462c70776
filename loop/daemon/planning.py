"""Planning a run of a lake, with what calls cost in its earlier runs; telling and keeping it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from textwrap import wrap
from typing import Any, cast

from ...configs.own_function import names_function
from ...configs.schema import ConfigError, EngineConfig, RunConfig
from ...policies.engines.chat_template import require_chat
from ...policies.engines.engine import EngineError
from ...policies.memory.stage_memory import gib
from ...policies.workers.identity import check_folder, is_url
from ...stores.beside import SMOKE
from ...stores.journal_file import DamagedJournalError
from ...stores.journal_reader import JournalError, Reader
from ...stores.keys import Json
from ...stores.lake import run_folder, run_names
from ...stores.records import Prompt
from ..recipes.roles import needed_roles
from ..run.models import NLI, located
from ..run.run import Run
from ..stages.people_labels import labels_of
from .fork_plan import with_reuse
from .job import Job, require_forkable
from .loop import required_prompts
from .memory_check import memory_of
from .opening import required_roles
from .plan import Plan, PlannedDisk, PlannedRole, PlannedStage, PlanSection, plan_of
from .plan_lines import short_lines, total_lines
from .rehearsal import Rehearsal, RehearsalError, rehearse
from .stand_ins import CallCost, CallCosts

PLAN = "plan"
"""The kind of the event that keeps a run's plan."""
EXCERPT = 160
"""Letters of what stands in for replies where requests are looked at."""
EARLIER = 5
"""Runs of a lake that are looked through for what calls cost."""


def planned(
    config: RunConfig, prompts: Sequence[Prompt], lake: Path, *, fork: str | None = None
) -> Plan:
    """Return the plan of a run of a lake, which may be a fork of another run there.

    Raises:
        ConfigError: if something configured cannot be used.
        RehearsalError: if the recipe fails in its rehearsal.
    """
    costs = costs_in(lake, config)
    told = [] if config.memory == "ignore" else [_memory_section(config)]
    rehearsal = rehearse(config, prompts, costs, labels=labels_of(config, lake))
    plan = plan_of(rehearsal, prompts, costs, told)
    return plan if fork is None else with_reuse(plan, rehearsal, prompts, lake, fork)


def dry_plan(job: Job) -> Plan:
    """Return the plan of a run that is not to begin: nothing is written, no model opened.

    Raises:
        ConfigError: if the run would be refused, or its recipe fails.
        InputError: if prompts cannot be read.
    """
    require_forkable(run_folder(job.lake, job.name), job)
    prompts = required_prompts(job.config, job.read_lake)
    try:
        plan = planned(job.config, prompts, job.lake, fork=job.fork)
        require_folders(job.config)
    except (RehearsalError, EngineError) as error:
        raise ConfigError(str(error)) from error
    required_roles(job)
    return plan


def dry_rehearsal(config: RunConfig, lake: Path) -> Rehearsal:
    """Return the rehearsal of a run that is not to begin.

    Raises:
        ConfigError: if the run would be refused, or its recipe fails.
        InputError: if prompts cannot be read.
    """
    try:
        prompts, labels = required_prompts(config, lake), labels_of(config, lake)
        rehearsal = rehearse(config, prompts, longest=EXCERPT, labels=labels)
        require_folders(config)
    except (RehearsalError, EngineError) as error:
        raise ConfigError(str(error)) from error
    return rehearsal


def require_folders(config: RunConfig) -> None:
    """Refuse folders that hold no model, or one whose chat template cannot be used.

    No weights and no tokenizer are loaded.

    Raises:
        EngineError: naming the folder or the template, and what is wrong.
    """
    for role in needed_roles(config):
        kind = "" if role.engine is None else role.engine.kind
        elsewhere = is_url(role.model) or kind in ("openai", "scripted")
        if not elsewhere and not names_function(role.model):
            folder = Path(located(role.model, "reward" if role.engine is None else "policy"))
            check_folder(folder)
            if role.name != NLI:
                require_chat(folder, role.engine or EngineConfig())


def tell_plan(run: Run, prompts: Sequence[Prompt]) -> None:
    """Tell what a run will do and keep it in its journal; of a run that goes on, a line is enough.

    A plan that cannot be made keeps nobody from running.
    """
    journal = run.store.journal
    if (kept := kept_plan(journal)) is not None:
        run.reporter.note(f"plan: as it was, {kept.total('calls'):,.0f} calls in all")
        return
    if any(stage.done for stage in journal.stages()):
        return
    try:
        fork = None if run.fork is None else run.fork.parent.folder.name
        plan = planned(run.config, prompts, run.store.folder.parent.parent, fork=fork)
    except (RehearsalError, ConfigError, EngineError) as error:
        run.reporter.note(f"plan: {error}")
        return
    run.store.when_there_is_room(lambda: journal.record(PLAN, plan.as_json()))
    for line in short_lines(plan):
        run.reporter.note(line)


def tell_refined(run: Run, prompts: Sequence[Prompt]) -> None:
    """Tell what a run will cost by what its smoke test measured, unless earlier runs had said so.

    The refined plan is kept in the place of the first one.
    """
    journal = run.store.journal
    kept, costs = kept_plan(journal), smoke_costs(journal)
    if kept is None or kept.measured or not costs:
        return
    try:
        rehearsal = rehearse(run.config, prompts, costs, labels=run.labels)
        plan = plan_of(rehearsal, prompts, costs)
    except (RehearsalError, ConfigError, EngineError) as error:
        run.reporter.note(f"plan: {error}")
        return
    run.store.when_there_is_room(lambda: journal.record(PLAN, plan.as_json()))
    for line in ("plan, by the answers of the smoke test:", *total_lines(plan)):
        run.reporter.note(line)


def smoke_costs(journal: Reader) -> CallCosts:
    """Return what calls cost in the smoke test that a run has passed, by the verbs of its stages.

    Its time is that of loading models, and tells nothing.
    """
    events = [cast("dict[str, Any]", event) for event in journal.events(SMOKE)]
    return {
        verb: _cost(found, 1)
        for event in events
        for verb, found in event.get("lengths", {}).items()
    }


def kept_plan(journal: Reader) -> Plan | None:
    """Return the plan that a run began with; None for one that has none."""
    events = journal.events(PLAN)
    return _read(cast("dict[str, Any]", events[-1])) if events else None


def _read(found: Mapping[str, Any]) -> Plan:
    known = (field.name for field in fields(Plan))
    own: dict[str, Any] = {name: found[name] for name in known if name in found}
    own["roles"] = tuple(_role(role) for role in own["roles"])
    own["stages"] = tuple(PlannedStage(**stage) for stage in own["stages"])
    own["disk"] = PlannedDisk(**own["disk"])
    own["sections"] = tuple(
        PlanSection(title=s["title"], lines=tuple(s["lines"])) for s in own["sections"]
    )
    return Plan(**own)


def _role(found: Mapping[str, Any]) -> PlannedRole:
    return PlannedRole(
        role=found["role"],
        model=found["model"],
        engine=found["engine"],
        asked_by=tuple(found["asked_by"]),
    )


def costs_in(lake: Path, config: RunConfig) -> CallCosts:
    """Return what calls of each stage cost in earlier runs of the same models, the latest first.

    A run that cannot be read, as one of an older lpfloop, tells nothing and is in nobody's way.
    """
    found: dict[str, CallCost] = {}
    names = reversed(run_names(lake)[-EARLIER:]) if lake.is_dir() else ()
    for name in names:
        try:
            reader = Reader(run_folder(lake, name))
        except (JournalError, DamagedJournalError):
            continue
        try:
            if _models(json.loads(reader.meta("config") or "{}")) == _models(_own(config)):
                for stage, cost in _measured(reader):
                    found.setdefault(stage, cost)
        finally:
            reader.close()
    return found


def _own(config: RunConfig) -> Mapping[str, Any]:
    return config.model_dump(mode="json", include={"policy": {"model"}, "critic": {"model"}})


def _models(config: Mapping[str, Any]) -> list[Json]:
    """Return the models that say how long answers are and what they take."""
    return [config.get(role, {}).get("model") for role in ("policy", "critic")]


def _measured(reader: Reader) -> list[tuple[str, CallCost]]:
    found = list[tuple[str, CallCost]]()
    for state in reversed(reader.stages()):
        calls = state.totals.get("calls", 0) or state.totals.get("rows", 0)
        if calls and state.done == state.planned:
            cost = replace(_cost(state.totals, calls), seconds=state.seconds / calls)
            found.append((state.stage, cost))
    return found


def _cost(sums: Mapping[str, float], calls: float) -> CallCost:
    """Return what a call costs, of sums; runs of earlier versions counted no letters."""
    asked = sums.get("prompt_letters", 0)
    return CallCost(
        tokens=sums.get("tokens", 0) / calls,
        letters=sums["letters"] / calls if "letters" in sums else None,
        density=sums.get("prompt_tokens", 0) / asked if asked else None,
    )


def _memory_section(config: RunConfig) -> PlanSection:
    """Return the plan's lines on memory: one for each stage, and what helps if it may not fit."""
    columns, lines = 78, list[str]()
    for stage in memory_of(config):
        if stage.unknown:
            lines.append(f"{stage.stage}: {stage.unknown}"[:columns])
            continue
        need = f"{gib(stage.most_bytes)} of {gib(stage.has_bytes)} GiB"
        lines.append(f"{stage.stage[:40]:<40} {need:>18}  {stage.verdict}")
        advice = stage.advice()
        lines += wrap(advice, columns, initial_indent="  ", subsequent_indent="  ")
    return PlanSection(title="memory of a device, at most", lines=tuple(lines))
