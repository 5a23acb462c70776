"""A plan as lines of at most 80 columns: all of it, or the few that a run begins with."""

from collections.abc import Iterator, Mapping

from ..data.splits import DEV, HELD_OUT, TRAIN, eval_set_of, is_measured_on
from ..data.text import duration, visible
from .plan import Plan
from .run_request import VERIFIER

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
