"""The units that a fork re-uses of its parent, reported before it begins.

Both configurations are rehearsed with the same prompts. A stage whose identity is the same in both
has the same keys in both runs, so the fork takes over the units that the parent has done of it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from ...configs.load import stored_config
from ...configs.schema import ConfigError, RunConfig
from ...policies.trainers.job import ONLINE
from ...stores.journal_reader import StageId
from ...stores.keys import Json
from ...stores.lake import RunReader
from ...stores.records import Prompt
from ..data.files import InputError
from ..lake.query.runs import open_run
from ..run.handles import Planned, content_key
from ..stages.people_labels import labels_of
from ..stages.unscored import TRAINING
from .loop import required_prompts
from .own_files import require_own_files
from .plan import Plan, PlannedStage
from .rehearsal import Rehearsal, RehearsalError, rehearse

SPENT = ("calls", "judge_calls", "prompt_tokens", "tokens", "most_tokens", "scored", "steps")
CUT = ("chunk", "per_iteration", "max_test", "max_dev", "parts", "variance")
"""Settings of prompts that a rehearsal replaces."""


def with_reuse(
    plan: Plan, rehearsal: Rehearsal, prompts: Sequence[Prompt], lake: Path, parent: str
) -> Plan:
    """Return the plan of a fork, without the units that it takes over from its parent.

    If the parent cannot be rehearsed, or had other prompts, the plan notes that re-use is unknown.

    Raises:
        NoSuchRunError: if the parent does not exist.
    """
    with closing(open_run(lake, parent)) as reader:
        own = rehearsal.config
        try:
            require_own_files(reader.journal)
            stored = json.loads(reader.journal.meta("config") or "{}")
            before = stored_config(stored, (), {}).model_copy(update={"iterations": own.iterations})
            if _cut(before) != _cut(own):
                return replace(plan, fork=parent)
            required = required_prompts(before, lake)
            if content_key(required) != content_key(prompts):
                return replace(plan, fork=parent)
            rehearsed = rehearse(before, required, labels=labels_of(before, lake))
            rehearsed.require_whole()
        except (ConfigError, InputError, RehearsalError):
            return replace(plan, fork=parent)
        same = _same_stages(rehearsal, rehearsed)
        last = max(stage.iteration for stage in rehearsal.stages)
        left = _pending_stages(plan, same, _done_units(reader), last)
        return replace(plan, fork=parent, stages=tuple(left))


def _cut(config: RunConfig) -> Json:
    return config.prompts.model_dump(mode="json", include={*CUT})


def _skipped_settings(config: RunConfig) -> Json:
    """Return the settings of trainings that a rehearsal replaces."""
    training = config.training
    online = [getattr(training, name) for name in sorted(ONLINE)]
    steps: Json = [[method.max_steps, method.publish_every] for method in online]
    return [steps, training.next_token.model_dump(mode="json"), training.min_pairs]


def _same_stages(fork: Rehearsal, parent: Rehearsal) -> set[StageId]:
    """Return the rehearsed stages that compute the same in both runs, from the same."""
    before = {id_: planned.identity for id_, planned, _ in _planned_stages(parent)}
    trained_alike = _skipped_settings(fork.config) == _skipped_settings(parent.config)
    found = set[StageId]()
    for id_, planned, upstream in _planned_stages(fork):
        trains = id_[1].partition(":")[0] in TRAINING
        alike = before.get(id_) == planned.identity and found.issuperset(upstream)
        if alike and (trained_alike or not trains):
            found.add(id_)
    return found


def _planned_stages(rehearsal: Rehearsal) -> Iterator[tuple[StageId, Planned, Sequence[StageId]]]:
    for stage in rehearsal.stages:
        if stage.planned is not None:
            yield (stage.planned.iteration, stage.planned.stage), stage.planned, stage.upstream


def _done_units(parent: RunReader) -> Mapping[StageId, tuple[int, int]]:
    """Return how many units of each stage the parent has planned, and done."""
    return {(s.iteration, s.stage): (s.planned, s.done) for s in parent.journal.stages()}


def _pending_stages(
    plan: Plan, same: set[StageId], done: Mapping[StageId, tuple[int, int]], last: int
) -> list[PlannedStage]:
    """Return the stages of a plan with the units that are left for the fork.

    Iterations after the `last` that was rehearsed are like it.
    """
    found = list[PlannedStage]()
    for stage in plan.stages:
        units, reused = done.get((stage.iteration, stage.stage), (0, 0))
        if units == stage.units and (min(stage.iteration, last), stage.stage) in same:
            found.append(_without(stage, reused))
        else:
            found.append(stage)
    return found


def _without(stage: PlannedStage, reused: int) -> PlannedStage:
    share = (stage.units - reused) / stage.units if stage.units else 1.0
    numbers = {name: round(getattr(stage, name) * share) for name in SPENT}
    seconds = None if stage.seconds is None else stage.seconds * share
    return replace(stage, **numbers, money=stage.money * share, seconds=seconds, reused=reused)
