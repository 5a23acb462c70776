"""What the plan of a run tells of memory."""

from textwrap import wrap

from ...configs.schema import RunConfig
from ...policies.memory.verdicts import gib
from .memory_check import memory_of
from .plan import PlanSection

COLUMNS, NAMED = 78, 40
"""Columns of a line of the plan, and of a stage's name in it."""


def memory_section(config: RunConfig) -> PlanSection:
    """Return a line of the plan for each stage, and what helps where one may not fit."""
    lines = list[str]()
    for stage in memory_of(config).stages:
        if stage.unknown:
            lines.append(f"{stage.stage}: {stage.unknown}"[:COLUMNS])
            continue
        need = f"{gib(stage.most_bytes)} of {gib(stage.has_bytes)} GiB"
        lines.append(f"{stage.stage[:NAMED]:<{NAMED}} {need:>18}  {stage.verdict}")
        if stage.reliefs or stage.verdict == "does not fit":
            lines += wrap(stage.advice(), COLUMNS, initial_indent="  ", subsequent_indent="  ")
    return PlanSection(title="memory of a device, at most", lines=tuple(lines))
