"""The text of `lpfloop status`: next steps, state, warnings, spending, the work of each stage."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rich.console import Console

from ...stores.address import run_argument
from ...stores.records import Alarm
from ..data.filter_counts import KEPT, keeps
from ..data.text import duration, one_line, print_wrapped, short_id, visible
from ..lake.query.answer_logprobs import format_logprobs, format_survival
from ..lake.query.row_table import print_texts

if TYPE_CHECKING:
    from ...stores.lake import RunReader

WARNING = 400
LINE = 400
ALARMS = 6
"""So many alarms are shown with the status."""
FEW = 10
"""Lower speeds are printed with two digits."""
LEAST_SHARE = 0.01
"""Roles with a smaller share of the time are not listed."""


def warnings_line(found: Sequence[Alarm], name: str) -> str:
    """Return how many warnings there are of a run, and whether one stops it."""
    stopping = sum(alarm.stops for alarm in found)
    if not found:
        return "no warnings"
    count = f"{len(found)} warning{'' if len(found) == 1 else 's'}"
    end = f"{stopping} can stop the run" if stopping else "none stops the run"
    return f"{count}, {end}: `lpfloop alarms {name}`"


def published_line(run: "RunReader", where: str) -> str | None:
    """Return which models of a run are the best and the latest; `where` is the option --lake."""
    from ..lake.query.best_model import best_kept
    from ..lake.query.model_names import checkpoints, published_of

    made = checkpoints(run)
    if not made:
        return None
    shown, latest = published_of(run, made), made[-1]
    name = f"M_{shown.iteration}"
    one = "latest" if best_kept(run) is None else "best"
    newer = "" if shown == latest else f" (latest: M_{latest.iteration})"
    called = f"{name} {short_id(shown.checkpoint_id)}, the {one}{newer}"
    return f"{called}: `lpfloop model {run.folder.name} {name}{where}` prints its folder"


def print_status(
    status: Mapping[str, Any],
    result: Sequence[str],
    tables: Callable[[Console], None],
    published: str | None,
    *,
    stages: bool,
) -> None:
    """Print a run's next steps, its state, its result, warnings and the next step, then details.

    `result` are the lines of its result, `tables` prints the tables of its figures.
    """
    console = Console()
    following = [] if published is None else [published]
    for line in (*_needs(status), *_state(status), *result, *_warnings(status), *following):
        print_wrapped(console, visible(line))
    tables(console)
    print_wrapped(console, f"spent: {_format_spend(status['spend'])}")
    for line in _details(status):
        print_wrapped(console, line)
    if stages:
        _print_stages(console, status)
    else:
        print_wrapped(console, "each stage: `lpfloop status --stages`")


def _needs(status: Mapping[str, Any]) -> Iterator[str]:
    """Yield the user's next steps for a run."""
    from ..lake.query.next_steps import Need, need_lines

    yield from need_lines([Need(**need) for need in status["needs"]], status["daemon"]["state"])


def _state(status: Mapping[str, Any]) -> Iterator[str]:
    """Yield who works on a run and at which stage, its folder, and how it ended if it is done."""
    daemon = status["daemon"]
    who = f", pid {daemon['pid']} on {daemon['host']}" if daemon["pid"] else ""
    done = str(status["ended"] or "").startswith(("done", "imported"))
    ended = f"; {status['ended']}" if done else ""
    yield f"run {status['run']}: {daemon['state']}{who}{ended}"
    if status["bucket"]:
        yield f"rows and models are in {status['bucket']}; the journal is at {status['folder']}"
        yield _snapshot_text(status["snapshot"])
    begun = [] if done else [*status["iterations"], *status["side_evals"]]
    for iteration in begun:
        for stage in iteration["stages"]:
            if stage["pending"]:
                place = (
                    f"iteration {iteration['iteration']}, {one_line(stage['stage'], limit=LINE)}"
                )
                yield f"  {place}: {_units(stage)}, {duration(stage['eta_s'])} to go"


def _warnings(status: Mapping[str, Any]) -> Iterator[str]:
    """Yield the newest alarms and other warnings, a line each."""
    from ..lake.query.alarm_list import sentence

    found = [Alarm(**alarm) for alarm in status["alarms"]]
    if found:
        yield warnings_line(found, run_argument(Path(status["folder"])))
    yield from (f"  {one_line(sentence(alarm), limit=LINE)}" for alarm in found[:ALARMS])
    yield from (f"warning: {one_line(warning, limit=WARNING)}" for warning in status["warnings"])


def _details(status: Mapping[str, Any]) -> Iterator[str]:
    """Yield the work of each role, each iteration's rows, and the side evals."""
    yield from _busy(status["busy"])
    if status["overlap"]:
        yield _format_overlap(status["overlap"])
    for iteration in status["iterations"]:
        yield f"iteration {iteration['iteration']}: {_format_counts(iteration['counts'])}"
        yield from (f"  {line}" for line in _made_lines(iteration))
    for aside in status["side_evals"]:
        what = f"{aside['benchmark']}, iteration {aside['iteration']}"
        made = ", ".join(f"{n:,} {name}" for name, n in aside["counts"].items() if n)
        yield one_line(f"outside the loop, {what}: {made or 'nothing yet'}", limit=LINE)


def _print_stages(console: Console, status: Mapping[str, Any]) -> None:
    """Print the plan of a run, and a row for each of its stages."""
    plan = cast("Mapping[str, Any]", status["plan"] or {"head": [], "ahead": []})
    for line in plan["head"]:
        print_wrapped(console, line)
    rows = list(_stages((*status["iterations"], *status["side_evals"]), plan["ahead"]))
    if rows:
        console.print()
        print_texts(console, STAGES, rows, left=2)


def _snapshot_text(snapshot: Mapping[str, Any]) -> str:
    """Return how much of a run's journal is in its bucket."""
    lag_s = snapshot["lag_s"]
    if lag_s is None:
        return "the bucket has no snapshot of the journal yet"
    which = f"snapshot {snapshot['number']} of epoch {snapshot['epoch']}"
    behind = f"its last {duration(lag_s)} excepted" if lag_s else "whole"
    return f"the bucket has the journal, {behind} ({which})"


def _made_lines(iteration: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines on an iteration's filters and its training on pairs."""
    yield from (_account(account) for account in iteration["filter_counts"])
    if iteration["answers"]:
        yield format_logprobs(iteration["answers"])
    if iteration["update_survival"] is not None:
        yield format_survival(iteration["update_survival"])


STAGE = 34
"""The width that a stage's name may take."""
STAGES = (
    "",
    "stage",
    "units",
    "pending",
    "unscored",
    "retries",
    "tokens",
    "per s",
    "time",
    "to go",
)


def _stages(
    iterations: Sequence[Mapping[str, Any]], ahead: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, ...]]:
    """Yield a row for each stage that was started, and for each planned one."""
    for iteration in iterations:
        for stage in iteration["stages"]:
            yield (
                str(iteration["iteration"]),
                one_line(stage["stage"], limit=STAGE),
                _units(stage),
                _count(stage["pending"]),
                _count(stage["unscored"]),
                _count(stage["retries"]),
                _count(stage["tokens"]),
                _count(round(_rate(stage) or 0)),
                duration(stage["seconds"]),
                duration(stage["eta_s"]) if stage["pending"] else "",
            )
    for stage in ahead:
        name, seconds = one_line(stage["stage"], limit=STAGE), stage["seconds"]
        units, time = stage["units"], "" if seconds is None else duration(seconds)
        blank = ("",) * 5
        yield (str(stage["iteration"]), name, f"0/{units}", _count(units), *blank, time)


def _units(stage: Mapping[str, Any]) -> str:
    """Return how many units are done; of a training under way the step and its loss."""
    training = stage["training"]
    if training is None:
        return f"{stage['done']}/{stage['planned']}"
    loss = "" if training["loss"] is None else f", loss {training['loss']:.3g}"
    return f"step {training['step']}/{training['max_steps']}{loss}"


def _rate(stage: Mapping[str, Any]) -> float | None:
    """Return the tokens per second that are drawn, or trained on."""
    training = stage["training"]
    return stage["rate"] if training is None else training["tokens_per_s"]


def _count(number: int) -> str:
    return f"{number:,}" if number else ""


def _format_spend(spend: Mapping[str, Mapping[str, float | None]]) -> str:
    return ", ".join(
        f"{name} {entry['used']:,}" + (f" of {entry['limit']:,}" if entry["limit"] else "")
        for name, entry in spend.items()
    )


def _busy(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield how much of the time each role worked."""
    roles = [_role_time(role) for role in found["roles"] if role["share"] >= LEAST_SHARE]
    if roles:
        yield one_line(f"busy: {', '.join(roles)}", limit=LINE)


def _role_time(role: Mapping[str, Any]) -> str:
    speeds = ((role["calls_per_s"], "calls/s"), (role["tokens_per_s"], "tokens/s"))
    text = ", ".join(f"{_speed(speed)} {unit}" for speed, unit in speeds if speed)
    return f"{role['role']} {role['share']:.0%}" + (f" ({text})" if text else "")


def _speed(speed: float) -> str:
    return f"{speed:,.0f}" if speed >= FEW else f"{speed:.2g}"


def _account(account: Mapping[str, Any]) -> str:
    """Return how many items a filter received, kept and dropped, why, and an id of each outcome."""
    what = f"{account['filter']}: {account['received']:,} {account['items']}"
    dropped = [o for o in account["outcomes"] if o["count"] and not keeps(o["outcome"])]
    kept = [o for o in account["outcomes"] if keeps(o["outcome"]) and o["outcome"] != KEPT]
    detail = ", ".join(_fate(o["outcome"].removeprefix(f"{KEPT}: "), o) for o in kept)
    parts = [f"{account['kept']:,} kept" + (f" ({detail})" if detail else "")]
    parts += [f"{_fate(o['outcome'], o)}, as {o['examples'][0]}" for o in dropped]
    return one_line(f"{what}, {'; '.join(parts)}", limit=LINE)


def _fate(name: str, outcome: Mapping[str, Any]) -> str:
    return f"{outcome['count']:,} {name}"


def _format_overlap(found: Mapping[str, Any]) -> str:
    """Return how many prompts of a run's splits overlap with others."""
    text = f"{found['overlapping']:,} of {found['held_out']:,} held-out prompts overlap with train"
    sharing = [
        f"{eval_set} {of['overlapping']:,} of {of['held_out']:,}"
        for eval_set, of in found["eval_sets"].items()
        if of["overlapping"]
    ]
    text += f" ({', '.join(sharing)})" if sharing else ""
    if found["dev"]:
        text += f", {found['dev_overlapping']:,} of {found['dev']:,} dev prompts"
    if found["dev_in_held_out"]:
        text += f"; {found['dev_in_held_out']:,} dev prompts overlap with held-out ones"
    return text


def _format_counts(counts: Mapping[str, Any]) -> str:
    parts = [
        f"{counts[name]:,} {name}"
        for name in ("candidates", "critiques", "pairs", "demonstrations")
    ]
    if counts.get("unpaired_answers"):
        parts.append(f"{counts['unpaired_answers']:,} unpaired answers")
    unscored = ", ".join(f"{number} {reason}" for reason, number in counts["unscored"].items())
    outcomes = ", ".join(f"{n} {name}" for name, n in counts["prompts_by_outcome"].items())
    if unscored:
        parts.append(f"unscored: {unscored}")
    if outcomes:
        parts.append(f"prompts: {outcomes}")
    return "; ".join(parts)
