"""The steps of an online method are units: counted, committed, resumed, adopted, paid for."""

from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from crashing import KILLED, Attempt, Silent, Whole, quick_folder, seen, write_prompts
from online_steps import (
    REAL,
    ROLLOUTS,
    STEPS,
    online_config,
    train,
    turned,
)

import lpfloop.loop.recipes.ppo
import lpfloop.loop.stages.publish
from lpfloop.configs.load import load_config
from lpfloop.configs.recipes import PPO
from lpfloop.configs.schema import ConfigError, RunConfig
from lpfloop.loop.daemon.loop import Job, run_loop
from lpfloop.loop.daemon.progress import progress
from lpfloop.loop.run.budget import BudgetReachedError
from lpfloop.loop.run.conditioning import control_of
from lpfloop.loop.run.iteration import Iteration
from lpfloop.loop.run.outcomes import NothingToTrainOn
from lpfloop.loop.run.reporter import Advance
from lpfloop.loop.run.stop import Stopped, StopSignal
from lpfloop.policies.trainers.train_model import TrainJob
from lpfloop.stores.digest import run_digest
from lpfloop.stores.lake import RunReader, run_folder
from lpfloop.stores.records import Checkpoint

LONGEST = 1024
"""Tokens of a prompt with its answer: what is set aside for each rollout of a step."""


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    return write_prompts(tmp_path)


@pytest.fixture
def stood_in(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Train by the stand-in; the list says which steps it made."""
    made: list[int] = []

    def note(_job: TrainJob, step: int) -> None:
        made.append(step)

    monkeypatch.setattr(lpfloop.loop.stages.publish, "train", partial(train, before=note))
    return made


def run(lake: Path, config: RunConfig, *, name: str = "a", fork: str | None = None) -> Path:
    run_loop(Job(config=config, lake=lake, name=name, fork=fork), Silent(), StopSignal())
    return run_folder(lake, name)


def counted(folder: Path) -> Counter[str]:
    reader = RunReader(folder)
    found = Counter[str]()
    for table in ("candidates", "rewards", "rollouts", "statistics", "checkpoints"):
        found[table] = reader.scan(table, iteration=1).collect().height
    reader.close()
    return found


def spent(folder: Path, *, iteration: int) -> int:
    reader = RunReader(folder)
    stages = progress(reader.journal, running=False)
    reader.close()
    return sum(s.tokens + s.prompt_tokens for s in stages if s.iteration == iteration)


@pytest.mark.usefixtures("stood_in")
def test_every_step_is_a_unit_with_its_rows_and_the_last_thing_is_a_checkpoint(
    tmp_path: Path, prompts: Path
):
    folder = run(tmp_path, online_config(prompts))
    reader = RunReader(folder)
    stages = {s.stage: s for s in progress(reader.journal, running=False) if s.iteration == 1}
    assert (stages["ppo"].planned, stages["ppo"].done) == (STEPS, STEPS)
    assert stages["ppo"].tokens == STEPS * ROLLOUTS * 5
    assert stages["ppo"].prompt_tokens == STEPS * ROLLOUTS * 7
    rollouts = reader.scan("rollouts").collect()
    assert sorted(set(rollouts["step"])) == list(range(1, STEPS + 1))
    candidates = reader.scan("candidates", iteration=1).collect()
    drawn = candidates.filter(candidates["kind"] == "rollout")
    assert set(drawn["candidate_id"]) == set(rollouts["candidate_id"])
    (row,) = reader.scan("checkpoints", iteration=1).collect().to_dicts()
    reader.close()
    assert (row["recipe"], row["steps"]) == ("ppo", STEPS)
    assert (folder / row["path"]).is_dir()
    assert not list((folder / "work").iterdir())


def test_a_budget_ends_the_run_between_steps_and_a_higher_one_lets_it_go_on(
    tmp_path: Path, prompts: Path, stood_in: list[int]
):
    long = f"training.ppo.max_length={LONGEST}"
    unlimited = run(tmp_path / "whole", online_config(prompts, long))
    two_steps = spent(unlimited, iteration=0) + 2 * ROLLOUTS * (7 + 5)
    stood_in.clear()
    limit = f"budget.tokens={two_steps + ROLLOUTS * LONGEST}"
    with pytest.raises(BudgetReachedError, match=r"budget\.tokens"):
        run(tmp_path, online_config(prompts, long, limit))
    assert stood_in == [1, 2, 3]
    assert run_digest(run(tmp_path, online_config(prompts, long))) == run_digest(unlimited)


def test_a_fork_adopts_the_steps_and_the_checkpoint(
    tmp_path: Path, prompts: Path, stood_in: list[int]
):
    config = online_config(prompts)
    before = counted(run(tmp_path, config))
    stood_in.clear()
    assert counted(run(tmp_path, config, name="b", fork="a")) == before
    assert not stood_in


def test_a_setting_of_the_method_makes_other_steps(
    tmp_path: Path, prompts: Path, stood_in: list[int]
):
    run(tmp_path, online_config(prompts))
    stood_in.clear()
    run(tmp_path, online_config(prompts, "training.ppo.kl_coef=0.5"), name="b", fork="a")
    assert len(stood_in) == STEPS


def test_the_launchers_file_is_for_the_other_trainings_alone_and_processes_for_all(
    tmp_path: Path, prompts: Path, monkeypatch: pytest.MonkeyPatch
):
    jobs: list[TrainJob] = []

    def note(job: TrainJob, _step: int) -> None:
        jobs.append(job)

    monkeypatch.setattr(lpfloop.loop.stages.publish, "train", partial(train, before=note))
    many = ("training.processes=2", "training.accelerate_config=launch.yaml")
    run(tmp_path, online_config(prompts, *many))
    assert {(job.processes, job.accelerate_config) for job in jobs} == {(2, None)}


@pytest.mark.usefixtures("stood_in")
def test_without_prompts_nothing_is_trained(tmp_path: Path, prompts: Path):
    none = online_config(prompts, "prompts.parts={sft: 0, preference: 6, unlabeled: 0}")
    with pytest.raises(NothingToTrainOn, match=r"prompts\.parts"):
        run(tmp_path, none)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunConfig, Whole]:
    """A configuration, and what a run of it holds that nobody killed."""
    folder = tmp_path_factory.mktemp("online")
    config = online_config(write_prompts(folder))
    Attempt(lake=folder, work=partial(turned, config=config)).finish()
    return config, seen(folder)


@pytest.mark.crash
@pytest.mark.parametrize("step", [1, 2, 4, STEPS])
def test_a_kill_while_a_step_is_made_changes_nothing(
    tmp_path: Path, uninterrupted: tuple[RunConfig, Whole], step: int
):
    config, whole = uninterrupted
    with quick_folder(tmp_path) as lake:
        work = partial(turned, config=config, dies_at=step)
        assert Attempt(lake=lake, work=work).start() == KILLED
        Attempt(lake=lake, work=work).finish()
        assert seen(lake) == whole


@pytest.mark.crash
@pytest.mark.parametrize(
    "place",
    [
        "lake.commit.before#9",
        "part.rename.before#30",
        "journal.commit.before#10",
        "checkpoint.trained",
        "checkpoint.published",
        "published.rename.before",
        "checkpoint.committed",
    ],
)
def test_a_kill_while_steps_are_committed_or_published_changes_nothing(
    tmp_path: Path, uninterrupted: tuple[RunConfig, Whole], place: str
):
    config, whole = uninterrupted
    with quick_folder(tmp_path) as lake:
        work = partial(turned, config=config)
        assert Attempt(lake=lake, work=work, points={place: "kill"}).start() == KILLED
        Attempt(lake=lake, work=work).finish()
        assert seen(lake) == whole


@pytest.mark.usefixtures("stood_in")
def test_without_a_reward_model_nothing_is_trained(
    tmp_path: Path, prompts: Path, monkeypatch: pytest.MonkeyPatch
):
    def none(_it: Iteration, _cfg: PPO) -> None:
        """Train no reward model where none is configured."""

    monkeypatch.setattr(lpfloop.loop.recipes.ppo, "surrogate", none)
    roles = ("strong", "medium", "weak")
    judges = (f"annotation.{role}.engine.kind=scripted" for role in roles)
    config = online_config(prompts, "reward.model=none", *judges)
    with pytest.raises(ConfigError, match="ppo needs a reward model"):
        run(tmp_path, config)


@pytest.mark.usefixtures("stood_in")
def test_greedy_answers_are_nothing_to_learn_from(tmp_path: Path, prompts: Path):
    with pytest.raises(ConfigError, match=r"policy\.sampling\.temperature is 0"):
        run(tmp_path, online_config(prompts, "policy.sampling.temperature=0"))


@pytest.mark.parametrize(("train_on", "control"), [("best", ""), ("all", "<|quantile-0|>")])
def test_a_policy_that_learned_all_quantiles_is_asked_for_the_best(train_on: str, control: str):
    config = load_config("tiny", "quark", (f"training.quark.train_on={train_on}",), {})
    trained = Checkpoint(
        checkpoint_id="c",
        parent_id="m",
        reference_id="m",
        iteration=1,
        recipe="quark",
        path="checkpoints/c",
        steps=1,
        metrics="{}",
    )
    assert control_of(config, trained) == control
    assert not control_of(config, replace(trained, recipe="initial"))


class StopsAfterAStep(Silent):
    """A reporter that asks for a stop as soon as the first step is committed."""

    def __init__(self) -> None:
        self.stop = StopSignal()
        self._stage = ""

    def begin(self, iteration: int, stage: str, *, planned: int, done: int) -> None:
        self._stage = stage

    def advance(self, iteration: int, stage: str, advance: Advance) -> None:
        if self._stage == "ppo":
            self.stop.request()


@pytest.mark.model
@pytest.mark.crash
def test_a_real_training_that_is_stopped_ends_as_one_that_was_not(tmp_path: Path, prompts: Path):
    config = online_config(prompts, *REAL)
    whole = run(tmp_path / "whole", config)
    reporter = StopsAfterAStep()
    job = Job(config=config, lake=tmp_path / "stopped", name="a")
    with pytest.raises(Stopped):
        run_loop(job, reporter, reporter.stop)
    folder = run(tmp_path / "stopped", config)
    assert run_digest(folder) == run_digest(whole)
    assert counted(folder)["rollouts"] == 3 * 8
    assert counted(folder)["checkpoints"] == 1
