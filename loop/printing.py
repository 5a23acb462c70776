"""Printing what was read: JSON for programs, tables for people, hostile text made harmless."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

from ..stores.records import SCORED, Evaluation
from .display import results_table
from .shown import one_line, visible

CELL = 80
SHORT_ID = 18


def print_json(document: object) -> None:
    """Print one JSON document on stdout."""
    typer.echo(json.dumps(document, ensure_ascii=True, indent=1))


def print_rows(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Print some columns of rows as a table."""
    table = Table(box=box.SIMPLE_HEAD)
    for name in columns:
        table.add_column(name, no_wrap=name.endswith("_id"), overflow="fold")
    for row in rows:
        table.add_row(*(_cell(name, row[name]) for name in columns))
    console = Console()
    console.print(table)
    console.print(f"{len(rows)} rows", highlight=False)


def print_results(evaluations: Sequence[Evaluation]) -> None:
    """Print the table of checkpoints and metrics."""
    Console().print(results_table(evaluations))


def print_status(status: Mapping[str, Any], evaluations: Sequence[Evaluation]) -> None:
    """Print who works on a run, its stages, what it has spent, its counts and results."""
    console = Console()
    daemon = status["daemon"]
    who = f", pid {daemon['pid']} on {daemon['host']}" if daemon["pid"] else ""
    console.print(f"run {status['run']}: {daemon['state']}{who}", highlight=False, markup=False)
    console.print(_stages(status["iterations"]))
    console.print(f"spent: {_spent(status['spend'])}", highlight=False, markup=False)
    for iteration in status["iterations"]:
        console.print(f"iteration {iteration['iteration']}: {_counted(iteration['counts'])}")
    console.print(results_table(evaluations))
    if status["ended"]:
        console.print(visible(str(status["ended"])), markup=False)


def _stages(iterations: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("")
    table.add_column("stage", min_width=18, overflow="fold")
    headings = ("units", "owed", "unscored", "retries", "tokens", "per s", "time", "to go")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for iteration in iterations:
        for stage in iteration["stages"]:
            table.add_row(
                str(iteration["iteration"]),
                escape(one_line(stage["stage"], limit=CELL)),
                f"{stage['done']}/{stage['planned']}",
                _count(stage["owed"]),
                _count(stage["unscored"]),
                _count(stage["retries"]),
                _count(stage["tokens"]),
                _count(round(stage["rate"] or 0)),
                _duration(stage["seconds"]),
                _duration(stage["eta_s"]) if stage["owed"] else "",
            )
    return table


def _count(number: int) -> str:
    return f"{number:,}" if number else ""


def _duration(seconds: float | None) -> str:
    """Return a time for a table; None is not known."""
    if seconds is None:
        return "?"
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    if hours:
        return f"{hours}:{minutes:02}:{rest:02.0f}"
    return f"{minutes}:{rest:02.0f}" if minutes else f"{rest:.1f} s"


def _spent(spend: Mapping[str, Mapping[str, float | None]]) -> str:
    return ", ".join(
        f"{name} {entry['used']:,}" + (f" of {entry['limit']:,}" if entry["limit"] else "")
        for name, entry in spend.items()
    )


def _counted(counts: Mapping[str, Any]) -> str:
    parts = [
        f"{counts[name]:,} {name}"
        for name in ("candidates", "critiques", "pairs", "demonstrations")
    ]
    unscored = ", ".join(f"{number} {reason}" for reason, number in counts["unscored"].items())
    outcomes = ", ".join(f"{n} {name}" for name, n in counts["prompts_by_outcome"].items())
    if unscored:
        parts.append(f"unscored: {unscored}")
    if outcomes:
        parts.append(f"prompts: {outcomes}")
    return "; ".join(parts)


def print_story(story: Mapping[str, Any]) -> None:
    """Print a prompt, its reference, and each candidate with what was said of it and made of it."""
    console = Console()
    prompt = story["prompt"]
    title = f"{prompt['prompt_id']} ({prompt['task']})"
    console.print(Panel(_text(prompt["messages"]), title=escape(one_line(title, limit=CELL))))
    if prompt["reference"]:
        console.print(Panel(escape(visible(prompt["reference"])), title="reference"))
    critiques = {row["candidate_id"]: row for row in story["critiques"]}
    rewards = {row["candidate_id"]: row for row in story["rewards"]}
    roles = _roles(story)
    for candidate in story["candidates"]:
        identity = candidate["candidate_id"]
        console.print(_candidate(candidate, critiques.get(identity), rewards.get(identity)))
        for role in roles.get(identity, ()):
            console.print(f"   {role}", highlight=False)
    for outcome in story["yields"]:
        console.print(
            f"iteration {outcome['iteration']}, {outcome['rule']}: {outcome['outcome']}, "
            f"{outcome['made']} made",
            highlight=False,
        )


def _roles(story: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return what each candidate was used for."""
    roles: dict[str, list[str]] = {}
    for pair in story["pairs"]:
        named = f"of pair {pair['pair_id']} (rule {pair['rule']}, rank {pair['rank']})"
        roles.setdefault(pair["chosen_id"], []).append(f"chosen {named}")
        roles.setdefault(pair["rejected_id"], []).append(f"rejected {named}")
    for row in story["demonstrations"]:
        named = f"{row['demonstration_id']} (rule {row['rule']}, rank {row['rank']})"
        roles.setdefault(row["candidate_id"], []).append(f"demonstration {named}")
    return roles


def _candidate(
    candidate: Mapping[str, Any],
    critique: Mapping[str, Any] | None,
    reward: Mapping[str, Any] | None,
) -> Panel:
    lines = [escape(visible(candidate["text"]))]
    if critique is not None:
        lines.append(f"[dim]{_ratings(critique)}[/dim]\n{escape(visible(critique['text']))}")
    score = reward["score"] if reward else None
    title = f"{candidate['kind']} {candidate['candidate_id']}, iteration {candidate['iteration']}"
    if score is not None:
        title += f", reward {score:.2f}"
    if candidate["parent_id"]:
        title += f", refines {candidate['parent_id']}"
    return Panel("\n".join(lines), title=title, title_align="left")


def _ratings(critique: Mapping[str, Any]) -> str:
    if critique["status"] != SCORED:
        return f"unscored: {escape(visible(critique['status']))}"
    return ", ".join(f"{escape(visible(a['name']))} {a['rating']}" for a in critique["aspects"])


def _text(messages: Sequence[Mapping[str, str]]) -> str:
    return escape("\n".join(visible(m["content"]) for m in messages))


def _cell(name: str, value: object) -> str:
    """Return a cell: the beginning of an id, which is enough to name it, or text on one line."""
    text = str(value)[:SHORT_ID] if name.endswith("_id") else _flat(value)
    return escape(one_line(text, limit=CELL))


def _flat(value: object) -> str:
    """Return a cell's text: messages as their contents, aspects as their ratings."""
    if not isinstance(value, list):
        return str(value)
    return "; ".join(_item(item) for item in cast("list[Any]", value))


def _item(item: Any) -> str:
    if not isinstance(item, dict):
        return str(item)
    fields = cast("dict[str, Any]", item)
    return fields.get("content") or f"{fields['name']} {fields['rating']}"
