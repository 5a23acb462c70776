"""Planning a run by the costs of calls in earlier runs of its lake; reporting the plan.

A plan is reported in lines of at most 80 columns: all of it, or the few that a run begins with.
"""

from collections.abc import Iterator, Mapping, Sequence
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
from ...stores.records import Prompt
from ..data.splits import DEV, HELD_OUT, TRAIN, eval_set_of, is_measured_on
from ..data.text import duration, visible
from ..recipes.roles import needed_roles
from ..run.models import locate_model
from ..run.reporter import log_event
from ..run.run import Observed, Run
from ..stages.people_labels import labels_of
from .job import Job, require_forkable
from .loop import required_prompts
from .memory_check import MemoryStages, StageMemory, gib
from .opening import rehearse_job, required_roles
from .plan import Plan, plan_of
from .rehearsal import Rehearsal, RehearsalError, rehearse
from .run_request import VERIFIER
from .stand_ins import LONGEST_REPLY, costs_in

WIDTH = 80
UNITS = ("", "k", "M", "G", "T")
THOUSAND = 1000
PURPOSES = {TRAIN: "to train on", DEV: "to decide by (dev)", HELD_OUT: "held out"}
NAMED = 34
"""Columns of a model's name."""


def plan_lines(plan: Plan) -> list[str]:
    """Return a whole plan, each stage on one line."""
    ends = () if plan.ends is None else (f"as it was rehearsed, it ends there: {plan.ends}",)
    lines = [*_table(plan), *_totals(plan), *_fork_lines(plan), *ends]
    if plan.too_few is not None:
        lines.append(plan.too_few)
    if plan.memory:
        lines += ["memory of a device, at most:", *(f"  {line}" for line in plan.memory)]
    return [*head_lines(plan), *map(visible, lines)]


def opening_lines(plan: Plan, run: str) -> list[str]:
    """Return the few lines that a run begins with."""
    lines = [f"run {run}: recipe {_title(plan)}", *head_lines(plan)[1:]]
    lines.append(f"  estimate  {estimate(plan)}")
    if plan.ends is not None:
        lines.append(f"  ends early: {plan.ends}")
    if plan.too_few is not None:
        lines.append(f"  {plan.too_few}")
    return [visible(line) for line in (*lines, *_fork_lines(plan))]


def estimate(plan: Plan) -> str:
    """Return the calls, tokens, money, disk and time of a plan."""
    tokens = f"{'about' if plan.measured else 'at most'} {short(plan.total('tokens'))} tokens"
    money, hours = plan.total("money"), plan.hours
    parts = [f"{short(plan.total('calls'))} calls", f"{tokens} of answers"]
    if money:
        parts.append(f"money {money:,.2f}" + ("" if plan.measured else " at most"))
    parts.append(f"{short(plan.disk.rows + plan.disk.models)}B of disk")
    parts.append("time not known yet" if hours is None else f"about {duration(3600 * hours)}")
    return ", ".join(parts)


def head_lines(plan: Plan) -> list[str]:
    """Return who plays which role, and which prompts there are."""
    lines = [f"plan: {_title(plan)}"]
    for role in plan.roles:
        engine = f" ({role.engine})" if role.engine else ""
        asked_by = ", ".join(role.asked_by)
        lines.append(_cut(f"  {role.role:<9} {_cut_name(role.model)}{engine}: {asked_by}"))
    needed = {role.role for role in plan.roles}
    unasked = {"reward"} - needed if VERIFIER in needed else {"critic", "reward"} - needed
    lines += [f"  {name:<9} none" for name in sorted(unasked)]
    return [visible(line) for line in (*lines, *_prompts(plan))]


def short(number: float) -> str:
    """Return a number in three digits: 1,234,567 is 1.23M."""
    power = 0
    while number >= THOUSAND and power + 1 < len(UNITS):
        number, power = number / THOUSAND, power + 1
    digits = 0 if power == 0 else max(0, 2 - len(f"{number:.0f}") + 1)
    return f"{number:.{digits}f}{UNITS[power]}"


def _title(plan: Plan) -> str:
    turns = f"{plan.iterations} iteration{'' if plan.iterations == 1 else 's'}"
    return f"{plan.recipe}, {turns}, seed {plan.seed}"


def _totals(plan: Plan) -> Iterator[str]:
    """Yield the total costs of all stages."""
    calls, judged = plan.total("calls"), plan.total("judge_calls")
    prompt_tokens, drawn, most = (plan.total(n) for n in ("prompt_tokens", "tokens", "most_tokens"))
    sure = "about" if plan.measured else "at most"
    bound = f" (at most {short(most)})" if plan.measured else ""
    money, disk, hours = plan.total("money"), plan.disk, plan.hours
    price = f", money {sure} {money:,.2f}" if money else ""
    yield f"total: {calls:,.0f} calls, {judged:,.0f} of them to judges{price}"
    answers = f"{sure} {short(drawn)} of answers{bound}"
    yield f"  tokens: about {short(prompt_tokens)} of prompts, {answers}"
    yield from map(_cut, _money(plan, money))
    kept = f"{short(disk.rows)}B of rows, {short(disk.models)}B of models"
    yield f"  disk: about {kept}; {short(disk.training)}B more while it trains"
    time = "not known before the first stage ran"
    yield f"  hours: {time if hours is None else f'about {hours:.1f}, as such stages took before'}"


def _money(plan: Plan, money: float) -> Iterator[str]:
    """Yield the costs of each model by purpose, unpriced models, and the limit."""
    for model, verbs in plan.bills.items():
        each = ", ".join(f"{verb} {cost:,.2f}" for verb, cost in verbs.items())
        yield f"  money: {_cut_name(model)} {sum(verbs.values()):,.2f} ({each})"
    if plan.unpriced:
        yield f"  money: no price for {', '.join(plan.unpriced)} (prices.models)"
    limit = plan.money_limit
    if limit is not None and money > limit:
        share = f"{limit / money:.0%} of it" if plan.measured else "less than it may cost"
        yield f"  budget.money: {limit:,.2f} is {share}: the run stops there, and can be resumed"


def _cut_name(model: str) -> str:
    return model if len(model) <= NAMED else f"…{model[1 - NAMED :]}"


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…"


def _prompts(plan: Plan) -> Iterator[str]:
    """Yield the prompts by split and task, and how many an iteration takes for which purpose."""
    for split, title in PURPOSES.items():
        counts = plan.prompts.get(split, {})
        if split == DEV and not counts:
            continue
        tasks = _format_counts(counts) if len(counts) > 1 else "".join(counts)
        by_task = f" ({tasks})" if tasks else ""
        yield _cut(f"  prompts   {sum(counts.values()):,} {title}{by_task}")
    groups = plan.groups
    sets = {name: size for name, size in groups.items() if is_measured_on(name, HELD_OUT)}
    learned = sum(size for name, size in groups.items() if name != DEV and name not in sets)
    named = {
        eval_set: size for name, size in sets.items() if (eval_set := eval_set_of(name)) is not None
    }
    apart = f" ({_format_counts(named)})" if named else ""
    decisive = f", deciding {groups[DEV]:,}" if groups[DEV] else ""
    by_task = f"{learned:,}, evaluation {sum(sets.values()):,}{apart}{decisive}"
    yield _cut(f"  an iteration takes {by_task}")
    trained = sum(plan.prompts.get(TRAIN, {}).values())
    for rule, count in sorted(plan.left_out.items()):
        yield _cut(f"  left out: {count:,} of {trained:,} ({count / trained:.2%}): {rule}")


def _format_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def _table(plan: Plan) -> Iterator[str]:
    drawn = "answers" if plan.measured else "answers ≤"
    yield f"  {'':<2} {'stage':<30} {'units':>7} {'calls':>8} {'prompts':>8} {drawn:>9} {'rows':>8}"
    for stage in plan.stages:
        numbers = (short(stage.prompt_tokens), short(stage.tokens)) if stage.calls else ("", "")
        calls = f"{stage.calls:,}" if stage.calls else ""
        rows = stage.rows or stage.scored
        yield _cut(
            f"  {stage.iteration:<2} {stage.stage[:30]:<30} {stage.units:>7,} {calls:>8} "
            f"{numbers[0]:>8} {numbers[1]:>9} {f'{rows:,}' if rows else '':>8}"
        )


def _fork_lines(plan: Plan) -> list[str]:
    """Return a line on the run whose units a fork re-uses; a stage finds them when it begins."""
    fits = f"  re-uses units of run {plan.fork} with the same inputs, so it may cost less than this"
    return [] if plan.fork is None else [fits]


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
    if rehearsal is None:
        labels = labels_of(config, lake)
        rehearsal = rehearse(config, prompts, costs_in(lake, config), labels=labels)
    rehearsal.require_whole()
    memory_lines = [] if config.memory == "ignore" else _memory_lines(config, rehearsal.seen)
    return replace(plan_of(rehearsal, prompts, memory_lines), fork=fork)


def dry_plan(job: Job) -> Plan:
    """Return the plan of a run that is not to begin: no file is written, no model opened.

    Raises:
        ConfigError: if the run would be refused, or its recipe fails.
        InputError: if prompts cannot be read.
    """
    require_forkable(job)
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
    for stage in _memory_of(run.config, run.seen) if run.config.memory != "ignore" else ():
        if stage.is_tight:
            text = f"{stage.stage}: {stage.verdict}: {stage.as_text()}"
            run.reporter.note(text, "warning", code="W-MEMORY", stage=stage.stage)


def _memory_of(config: RunConfig, seen: Observed) -> tuple[StageMemory, ...]:
    return MemoryStages(config=config, roles=needed_roles(config, seen)).advised()


def kept_plan(journal: Reader) -> Plan | None:
    """Return the plan that a run began with, if any."""
    events = journal.events(PLAN)
    return TypeAdapter(Plan).validate_python(events[-1]) if events else None


def _memory_lines(config: RunConfig, seen: Observed) -> list[str]:
    """Return a line of at most 78 columns for each stage, and remedies if it may not fit."""
    columns, lines = 78, list[str]()
    for stage in _memory_of(config, seen):
        if stage.unknown:
            lines.append(f"{stage.stage}: {stage.unknown}"[:columns])
            continue
        need = f"{gib(stage.most_bytes)} of {gib(stage.has_bytes)} GiB"
        lines.append(f"{stage.stage[:40]:<40} {need:>18}  {stage.verdict}")
        lines += wrap(stage.advice, columns, initial_indent="  ", subsequent_indent="  ")
    return lines
