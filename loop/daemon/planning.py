"""Planning a run by the costs of calls in earlier runs of its lake; reporting the plan."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import wrap

from pydantic import TypeAdapter

from ...configs.own_function import names_function
from ...configs.schema import ConfigError, EngineConfig, RunConfig
from ...policies.engines.chat_template import require_chat
from ...policies.engines.engine import EngineError
from ...policies.workers.identity import check_folder, is_url
from ...stores.address import run_argument
from ...stores.journal_reader import Reader
from ...stores.lake import run_folder
from ...stores.records import Prompt
from ..recipes.roles import needed_roles
from ..run.models import locate_model
from ..run.observed import Observed
from ..run.reporter import log_event
from ..run.run import Run
from ..stages.people_labels import labels_of
from .call_costs import costs_in
from .job import Job, require_forkable
from .loop import required_prompts
from .memory_check import gib, memory_of
from .opening import rehearse_job, required_roles
from .plan import Plan, plan_of
from .plan_lines import opening_lines, short
from .rehearsal import Rehearsal, RehearsalError, rehearse
from .stand_ins import LONGEST_REPLY

PLAN = "plan"
"""The kind of the event that keeps a run's plan."""


def plan_run(
    config: RunConfig,
    prompts: Sequence[Prompt],
    lake: Path,
    *,
    fork: str | None = None,
    rehearsal: Rehearsal | None = None,
) -> Plan:
    """Return the plan of a run of a lake, which may be a fork of another run there.

    Raises:
        ConfigError: if something configured cannot be used.
        RehearsalError: if the recipe fails in its rehearsal.
    """
    costs = costs_in(lake, config)
    shown = rehearsal or rehearse(config, prompts, costs, labels=labels_of(config, lake))
    shown.require_whole()
    memory_lines = [] if config.memory == "ignore" else _memory_lines(config, shown.seen)
    plan = plan_of(shown, prompts, costs, memory_lines)
    return replace(plan, fork=fork)


def dry_plan(job: Job) -> Plan:
    """Return the plan of a run that is not to begin: no file is written, no model opened.

    Raises:
        ConfigError: if the run would be refused, or its recipe fails.
        InputError: if prompts cannot be read.
    """
    require_forkable(run_folder(job.lake, job.name), job)
    prompts = required_prompts(job.config, job.lake)
    rehearsal = dry_rehearsal(job, prompts)
    plan = plan_run(job.config, prompts, job.lake, fork=job.fork, rehearsal=rehearsal)
    required_roles(job, rehearsal.seen)
    return plan


def dry_rehearsal(
    job: Job, prompts: Sequence[Prompt], *, longest: int = LONGEST_REPLY
) -> Rehearsal:
    """Return the rehearsal of a run that is not to begin.

    Placeholders for replies have `longest` letters at most.

    Raises:
        ConfigError: if the run would be refused, its recipe fails, or a model is not in its folder.
    """
    try:
        rehearsal = rehearse_job(job, prompts, longest=longest)
        rehearsal.require_whole()
        require_folders(job.config, rehearsal.seen)
    except (RehearsalError, EngineError) as error:
        raise ConfigError(str(error)) from error
    return rehearsal


def require_folders(config: RunConfig, seen: Observed) -> None:
    """Refuse folders without a model, or with a chat template that cannot be used.

    No weights and no tokenizer are loaded.

    Raises:
        EngineError: naming the folder or the template, and the problem.
    """
    for role in needed_roles(config, seen):
        kind = "" if role.engine is None else role.engine.kind
        elsewhere = is_url(role.model) or kind in ("openai", "scripted")
        if not elsewhere and not names_function(role.model):
            folder = Path(locate_model(role.model, "reward" if role.engine is None else "policy"))
            check_folder(folder)
            require_chat(folder, role.engine or EngineConfig())


def announce_plan(run: Run, prompts: Sequence[Prompt], rehearsal: Rehearsal | None = None) -> None:
    """Report the plan of a run and keep it in its journal; for a resumed run, in one line.

    `rehearsal` is the run's, if it was rehearsed already.

    A run without a possible plan continues.
    """
    journal = run.store.journal
    if (kept := kept_plan(journal)) is not None:
        calls = kept.total("calls")
        run.reporter.note(f"run {run.name} resumes: {short(calls)} calls in all", "plan")
        return
    if any(stage.done for stage in journal.stages()):
        return
    fork = None if run.fork is None else run.fork.parent.folder.name
    lake = run.store.folder.parent.parent
    try:
        plan = plan_run(run.config, prompts, lake, fork=fork, rehearsal=rehearsal)
    except (RehearsalError, ConfigError, EngineError) as error:
        run.reporter.note(f"no plan could be made: {error}", "warning", code="W-PLAN")
        return
    run.store.when_there_is_room(lambda: journal.record(PLAN, plan.as_json()))
    log_event("plan", "plan", recipe=plan.recipe, iterations=plan.iterations, **plan.totals)
    for line in opening_lines(plan, run.name):
        run.reporter.note(line)
    own = run_argument(run.store.folder)
    run.reporter.note(f"  Ctrl-C stops cleanly: `lpfloop resume {own}` continues")
    if run.config.memory != "ignore":
        _warn_of_memory(run)


def _warn_of_memory(run: Run) -> None:
    """Warn of each stage that may not fit into its device."""
    for stage in memory_of(run.config, roles=needed_roles(run.config, run.seen)):
        if stage.is_tight:
            text = f"{stage.stage}: {stage.verdict}: {stage.as_text()}"
            run.reporter.note(text, "warning", code="W-MEMORY", stage=stage.stage)


def kept_plan(journal: Reader) -> Plan | None:
    """Return the plan that a run began with, if any."""
    events = journal.events(PLAN)
    return TypeAdapter(Plan).validate_python(events[-1]) if events else None


def _memory_lines(config: RunConfig, seen: Observed) -> list[str]:
    """Return a line of at most 78 columns for each stage, and remedies if it may not fit."""
    columns, lines = 78, list[str]()
    for stage in memory_of(config, roles=needed_roles(config, seen)):
        if stage.unknown:
            lines.append(f"{stage.stage}: {stage.unknown}"[:columns])
            continue
        need = f"{gib(stage.most_bytes)} of {gib(stage.has_bytes)} GiB"
        lines.append(f"{stage.stage[:40]:<40} {need:>18}  {stage.verdict}")
        lines += wrap(stage.advice, columns, initial_indent="  ", subsequent_indent="  ")
    return lines
