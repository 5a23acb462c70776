"""The report of one run: its answer, its sections, its models by role, and how it was made."""

import json
import platform
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

import polars as pl

from ... import __version__
from ...stores.digest import run_digest
from ...stores.lake import RunReader
from ...stores.records import PolicyVerdict
from ..data.splits import DEV, HELD_OUT
from ..evaluation.plots import Panel, label_of, plot_bytes
from ..lake.query.figures import NotMeasuredError
from ..lake.query.model_figures import run_results
from ..lake.query.model_names import checkpoints
from ..lake.query.run_verdicts import format_verdict, run_verdict
from ..lake.query.runs import NoSuchRunError
from .answers import answers_section
from .critic import critic_section
from .over_optimisation import over_optimisation_section
from .pairs import pairs_section
from .result_table import ResultTable, result_table
from .results import results_section
from .run_answer import format_alarms, format_needs, run_answer
from .section import Section
from .spending import spending_section
from .training import training_section

MARK = "lpfloop report"
"""The generator tag by which a report is recognised."""
SECTIONS: Sequence[Callable[[RunReader], Section]] = (
    results_section,
    critic_section,
    over_optimisation_section,
    answers_section,
    pairs_section,
    training_section,
    spending_section,
)
DIGESTED = 30_000
"""Of so many rows at most the digest is computed: of millions it takes longer than the report."""
NONE = "-"
ROLES = ("policy", "critic", "reward")
SPLITS = {"train": "to train on", DEV: "to decide by (dev)", HELD_OUT: "held out (test)"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A page and its sections."""

    html: str
    sections: Sequence[Section]


def run_report(run: RunReader, work: str) -> Report:
    """Return the report of a run, also an unfinished one; `work` is its process's activity."""
    return drawn_report(
        "report.html",
        [run],
        f"report {run.folder.name}",
        [make(run) for make in SECTIONS],
        title=f"Run {run.folder.name}",
        answer=run_answer(run),
        alarms=list(format_alarms(run)),
        needs=format_needs(run, work),
        figures=_figures(run),
        verdicts=list(_verdicts(run)),
        roles=[*_roles(run), *_prompts(run)],
    )


def drawn_report(
    template: str,
    runs: Sequence[RunReader],
    again: str,
    sections: Sequence[Section],
    **values: object,
) -> Report:
    """Return a page drawn from a template; `again` is the command that makes it again."""
    from markupsafe import Markup

    from .templates import HERE, templates

    drawn = [
        (section, [(label_of(panel.title), _data_uri(panel)) for panel in section.panels])
        for section in sections
    ]
    html = (
        templates()
        .get_template(template)
        .render(
            mark=MARK,
            style=Markup((HERE / "report.css").read_text(encoding="utf-8")),  # noqa: S704
            version=__version__,
            python=platform.python_version(),
            again=again,
            states=[_state(run) for run in runs],
            sections=drawn,
            **values,
        )
    )
    return Report(html=html, sections=sections)


def _data_uri(panel: Panel) -> str:
    """Return a panel as the address of an image."""
    return f"data:image/svg+xml;base64,{b64encode(plot_bytes([panel], '.svg')).decode()}"


def _state(run: RunReader) -> str:
    """Return how far a run had come: the same lake gives the same words."""
    name, events = run.folder.name, run.journal.all_events()
    last = max((at for at, _, _ in events), default=0.0)
    when = datetime.fromtimestamp(last, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    rows = sum(part.rows for part in run.journal.parts())
    small = rows <= DIGESTED
    digest = f"digest `{run_digest(run.folder)}`" if small else f"see `lpfloop lake digest {name}`"
    return f"Run {name} as of {when}, {rows:,} rows, {digest}."


def _figures(run: RunReader) -> ResultTable | None:
    try:
        results = run_results(run)
    except NotMeasuredError:
        return None
    return result_table(results) if results.rows else None


def _verdicts(run: RunReader) -> Iterator[Sequence[str]]:
    """Give the verdicts on each policy, and what was decided."""
    try:
        found = run_verdict(run, checkpoints(run))
    except NoSuchRunError:
        return
    for each in found.iterations:
        yield (
            f"M_{each.checkpoint.iteration}",
            _verdict(each.of(DEV, "best")),
            _verdict(each.of(HELD_OUT, "initial")),
            NONE if each.standing is None else each.standing.reason,
        )


def _verdict(row: PolicyVerdict | None) -> str:
    return NONE if row is None else f"{row.answer}: {format_verdict(row)}"


def _roles(run: RunReader) -> Iterator[Sequence[str]]:
    """Give the roles of a run's plan; without one, those that its configuration names."""
    config = cast("dict[str, Any]", json.loads(run.journal.meta("config") or "{}"))
    plans = cast("list[dict[str, Any]]", run.journal.events("plan"))
    recipe = plans[-1]["recipe"] if plans else config.get("recipe", {}).get("name", NONE)
    turns, seed = config.get("iterations", NONE), config.get("seed", NONE)
    yield "recipe", str(recipe), f"iterations: {turns}, seed {seed}"
    if not plans:
        for name in ROLES:
            yield name, str(config.get(name, {}).get("model") or NONE), ""
        return
    for role in plans[-1]["roles"]:
        engine = f" ({role['engine']})" if role["engine"] else ""
        yield role["role"], f"{role['model']}{engine}", ", ".join(role["asked_by"])


def _prompts(run: RunReader) -> Iterator[Sequence[str]]:
    counts = (
        run.scan("prompts", columns={"prompt_id", "split", "task"})
        .group_by("split", "task")
        .len()
        .sort("split", "task")
        .collect(engine="streaming")
    )
    for split, label in SPLITS.items():
        own = counts.filter(pl.col("split") == split)
        if own.height:
            tasks = ", ".join(f"{task} {n:,}" for task, n in own.select("task", "len").iter_rows())
            yield "prompts", f"{own['len'].sum():,} {label}", tasks
