"""The plan of a run is what the run then does; a dry run writes nothing."""

from collections import Counter
from pathlib import Path

import pytest
from crashing import Silent

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import RunConfig
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import turn
from lpfloop.loop.daemon.opening import opened
from lpfloop.loop.daemon.plan import Plan
from lpfloop.loop.daemon.planning import planned
from lpfloop.loop.daemon.progress import Progress, progress
from lpfloop.loop.daemon.stand_ins import Notes, StageNotes, StandInScorer, StandInTrainer
from lpfloop.loop.data.prompts import tiny_prompts
from lpfloop.loop.recipes import RECIPES
from lpfloop.loop.run.stop import StopSignal
from lpfloop.stores.records import Prompt

TRAINED = ("train", "train_reward", "ppo", "quark")
SPLIT = ("annotate", "compare")
"""What several annotators share: who gets which pair is drawn by ids that a rehearsal has not."""
QUICK = (
    "policy.engine={kind: scripted, script: 'scripts:policy'}",
    "critic.engine={kind: scripted, script: 'scripts:clear_critic'}",
    "training.min_pairs=1",
    "training.ppo.max_steps=3",
    "training.quark.max_steps=3",
    "assessment.probes=null",
    "training.next_token.weight=0",
    "prompts.chunk=5",
    "iterations=1",
)


def config_of(name: str, share: int, *more: str) -> RunConfig:
    limits = (f"prompts.per_iteration={share}", f"prompts.evaluated={share // 2}")
    rewarded = ("reward.model=none",) if name == "rlrf" else ()
    return load_config("tiny", name, (*QUICK, *limits, *rewarded, *more), {})


@pytest.fixture(scope="module")
def prompts() -> list[Prompt]:
    """A share of the tiny world's prompts, of each task and of both splits."""
    return tiny_prompts()[::40]


def done(config: RunConfig, prompts: list[Prompt], lake: Path) -> list[Progress]:
    """What a run does whose engines are scripts, and whose trainer and reward model stand in."""
    stop = StopSignal()
    notes = Notes(costs={}, count_of=lambda _: pytest.fail("no engine stands in"))
    notes.stages.append(StageNotes(iteration=0, stage="", judge=False))
    with opened(Job(config=config, lake=lake, name="a"), prompts, Silent(), stop) as run:
        run.trainer = StandInTrainer(notes=notes)
        run.models.scorer = lambda _=None: StandInScorer(notes=notes)
        turn(run, prompts)
        return progress(run.store.journal, running=False)


def calls(plan: Plan, *, shared: bool) -> Counter[tuple[int, str]]:
    found = Counter[tuple[int, str]]()
    for stage in plan.stages:
        verb = stage.stage.partition(":")[0]
        if stage.stage not in TRAINED and (verb in SPLIT) == shared:
            found[stage.iteration, verb if shared else stage.stage] += stage.calls
    return +found


@pytest.mark.parametrize(
    ("name", "share"), [*((name, 8) for name in RECIPES), ("rlrf", 40), ("ultrafeedback-ppo", 40)]
)
def test_a_run_does_what_its_plan_says(
    tmp_path: Path, prompts: list[Prompt], name: str, share: int
) -> None:
    config = config_of(name, share)
    plan = planned(config, prompts, tmp_path / "lake")
    made = done(config, prompts, tmp_path)
    assert plan.ends is None
    assert plan.exact == (share == 8)
    units = {(stage.iteration, stage.stage): stage.planned for stage in made}
    assert {(stage.iteration, stage.stage): stage.units for stage in plan.stages} == units
    asked = Counter[tuple[int, str]]()
    split = Counter[tuple[int, str]]()
    for stage in made:
        verb = stage.stage.partition(":")[0]
        first = stage.calls - stage.retries
        if verb in SPLIT:
            split[stage.iteration, verb] += first
        elif stage.stage not in TRAINED:
            asked[stage.iteration, stage.stage] += first
    assert calls(plan, shared=False) == +asked
    shared = calls(plan, shared=True)
    assert shared.keys() == (+split).keys()
    assert all(1 / 3 < shared[place] / split[place] < 3 for place in shared)
