"""Unreadable replies of a critic, grader or reviewer can be requested again."""

from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from judges import BAD, GOOD, write_reviewed
from world import KILLED, RUN, Attempt, Silent, stand_ins

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError, RunConfig
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.run.stop import NothingToTrainOn, StopSignal
from lpfloop.loop.stages.unscored import to_retry, unscored_stages
from lpfloop.stores.digest import run_digest
from lpfloop.stores.journal import Done, Journal
from lpfloop.stores.journal_reader import Reader
from lpfloop.stores.lake import run_folder

SETTINGS = (
    "policy.engine={kind: scripted, script: 'world:policy'}",
    "critic.engine={kind: scripted, script: 'scripts:critic'}",
    "reward.model=none",
    "prompts={max_test: 4, dev_share: 0, chunk: 3}",
    "iterations=1",
    "training.min_pairs=1000000",
    "assessment={reference: null, reward: false, kl: false, oracle: null, probes: null}",
)
STAMMERING = "critic.engine.script=scripts:stammering_critic"
GRADED = (
    "recipe.name=ultrafeedback-dpo",
    "completion.pool=policy",
    "critic.kind=verifier",
    "grading.model=tiny",
    "grading.engine={kind: scripted, script: 'judges:stammering_grader'}",
    "prompts.parts={sft: 0, preference: 8, unlabeled: 0}",
    "recipe.n=3",
)
REVIEWED = (
    "recipe.n=2",
    "recipe.m=0",
    "prompts.quality={judge: model, model: tiny}",
    "prompts.quality.engine={kind: scripted, script: 'judges:hesitant_reviewer'}",
)
CASES = {
    "critiques": ("critic.attempts", (STAMMERING, "recipe.n=2", "recipe.m=0")),
    "grades": ("grading.attempts", GRADED),
    "reviews": ("prompts.quality.attempts", REVIEWED),
}


def config(folder: Path, kind: str, attempts: int, *overrides: str) -> RunConfig:
    setting, settings = CASES[kind]
    source = f"prompts.source={write_reviewed(folder, *GOOD, *BAD)}"
    chosen = (*SETTINGS, *settings, source, f"{setting}={attempts}", *overrides)
    return load_config("tiny", None, chosen, {})


def turned(lake: Path, *, wanted: RunConfig, name: str = RUN, again: bool = False) -> None:
    job = Job(config=wanted, lake=lake, name=name, retry_unscored=again)
    with suppress(NothingToTrainOn):
        run_loop(job, Silent(), StopSignal())


def left(lake: Path, name: str = RUN) -> int:
    reader = Reader(run_folder(lake, name))
    found = sum(stage.rows for stage in unscored_stages(reader))
    reader.close()
    return found


@pytest.mark.parametrize("kind", CASES)
def test_asking_again_gives_same_digest(tmp_path, kind, asked):
    with stand_ins(tmp_path):
        turned(tmp_path, wanted=config(tmp_path, kind, 1))
        assert left(tmp_path)
        before = len(asked)
        turned(tmp_path, wanted=config(tmp_path, kind, 1), again=True)
        assert left(tmp_path) == 0
        drawn = [request for request, _ in asked[before:] if request.request_id.startswith("cand")]
        assert kind == "reviews" or not drawn
        turned(tmp_path, wanted=config(tmp_path, kind, 2), name="b")
    assert run_digest(run_folder(tmp_path, RUN)) == run_digest(run_folder(tmp_path, "b"))


def test_trained_rows_not_rejudged(tmp_path):
    with stand_ins(tmp_path):
        turned(tmp_path, wanted=config(tmp_path, "reviews", 1))
    journal = Journal(run_folder(tmp_path, RUN))
    (unit,) = journal.keys(1, "train")
    journal.commit([Done(unit=unit, parts={}, telemetry={})])
    journal.close()
    reader = Reader(run_folder(tmp_path, RUN))
    late = [stage for stage in unscored_stages(reader) if stage.trained is not None]
    assert {stage.kind.noun for stage in late} == {"reviews"}
    assert len(late) == len(unscored_stages(reader))
    with pytest.raises(ConfigError, match="iteration 1"):
        to_retry(reader)
    reader.close()


def test_killed_while_asking_again(tmp_path):
    wanted = config(tmp_path, "reviews", 1)
    Attempt(lake=tmp_path, work=partial(turned, wanted=wanted)).finish()
    again = partial(turned, wanted=wanted, again=True)
    points = {"journal.amend.after#2": "kill"}
    assert Attempt(lake=tmp_path, work=again, points=points).start() == KILLED
    Attempt(lake=tmp_path, work=again).finish()
    straight = partial(turned, wanted=config(tmp_path, "reviews", 2), name="b")
    Attempt(lake=tmp_path, work=straight).finish()
    assert left(tmp_path) == 0
    assert run_digest(run_folder(tmp_path, RUN)) == run_digest(run_folder(tmp_path, "b"))
