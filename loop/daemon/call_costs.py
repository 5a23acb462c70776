"""The measured costs of calls in earlier runs of a lake."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...configs.schema import RunConfig
from ...stores.journal_file import DamagedJournalError
from ...stores.journal_reader import JournalError, Reader
from ...stores.keys import Json
from ...stores.lake import run_folder, run_names

EARLIER = 5
"""How many runs of a lake are searched for the costs of calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCost:
    """The measured cost of a stage's call: mean tokens and letters of an answer.

    `density` is the tokens that a letter of a prompt took, `seconds` wall time of the whole stage a
    call. None is unmeasured.
    """

    tokens: float
    letters: float | None = None
    density: float | None = None
    seconds: float | None = None


CallCosts = Mapping[str, CallCost]
"""By stage, as `status` calls it, without its iteration."""


def costs_in(lake: Path, config: RunConfig) -> CallCosts:
    """Return the costs of calls of each stage in earlier runs of the same models, the latest first.

    A run that cannot be read, as one of an older lpfloop, is skipped.
    """
    found: dict[str, CallCost] = {}
    own = [config.policy.model, config.critic.model]
    names = reversed(run_names(lake)[-EARLIER:]) if lake.is_dir() else ()
    for name in names:
        try:
            reader = Reader(run_folder(lake, name))
        except (JournalError, DamagedJournalError):
            continue
        try:
            if _models(json.loads(reader.meta("config") or "{}")) == own:
                for stage, cost in _measure_costs(reader):
                    found.setdefault(stage, cost)
        finally:
            reader.close()
    return found


def _models(config: Mapping[str, Any]) -> list[Json]:
    """Return the models on which the length and the cost of answers depend."""
    return [config.get(role, {}).get("model") for role in ("policy", "critic")]


def _measure_costs(reader: Reader) -> list[tuple[str, CallCost]]:
    found = list[tuple[str, CallCost]]()
    for state in reversed(reader.stages()):
        calls = state.totals.get("calls", 0) or state.totals.get("rows", 0)
        if calls and state.done == state.planned:
            cost = replace(_cost(state.totals, calls), seconds=state.seconds / calls)
            found.append((state.stage, cost))
    return found


def _cost(sums: Mapping[str, float], calls: float) -> CallCost:
    """Return the mean cost of a call from sums; runs of earlier versions did not count letters."""
    letters = sums.get("prompt_letters", 0)
    return CallCost(
        tokens=sums.get("tokens", 0) / calls,
        letters=sums["letters"] / calls if "letters" in sums else None,
        density=sums.get("prompt_tokens", 0) / letters if letters else None,
    )
