"""The steps of an online method are units: counted, committed, resumed, paid."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import online
import pytest
from online import ROLLOUTS, STEPS, online_config, train_online, turned
from world import KILLED, Attempt, Silent, Whole, quick_folder, seen, write_prompts

import lpfloop.loop.recipes.ppo
import lpfloop.loop.stages.publish
from lpfloop.configs.schema import RunConfig
from lpfloop.loop.daemon.loop import Job, run_loop
from lpfloop.loop.daemon.progress import progress
from lpfloop.loop.run.budget import BudgetReachedError
from lpfloop.loop.run.stop import StopSignal
from lpfloop.policies.trainers.job import Method, OnlineJob
from lpfloop.policies.trainers.step_files import (
    LEFT_OUT,
    REFUSED,
    PromptToSample,
    StepRows,
    statistics,
)
from lpfloop.policies.trainers.train_model import TrainJob
from lpfloop.stores.digest import run_digest
from lpfloop.stores.lake import RunReader, run_folder

LONGEST = 1024
"""Tokens of a prompt with its answer: the budget reserves them for each rollout of a step."""


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    return write_prompts(tmp_path)


@pytest.fixture
def stood_in(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Train with the fake; the list contains the steps that it made."""
    made: list[int] = []

    def note(_job: TrainJob, step: int) -> None:
        made.append(step)

    monkeypatch.setattr(lpfloop.loop.stages.publish, "train", partial(train_online, before=note))
    return made


def run(lake: Path, config: RunConfig) -> Path:
    run_loop(Job(config=config, lake=lake, name="a"), Silent(), StopSignal())
    return run_folder(lake, "a")


def spent(folder: Path, *, iteration: int) -> int:
    reader = RunReader(folder)
    stages = progress(reader.journal, running=False)
    reader.close()
    return sum(s.tokens + s.prompt_tokens for s in stages if s.iteration == iteration)


@pytest.mark.usefixtures("stood_in")
def test_steps_are_units_with_rows(tmp_path: Path, prompts: Path):
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


def test_budget_ends_between_steps(tmp_path: Path, prompts: Path, stood_in: list[int]):
    long = f"training.ppo.max_length={LONGEST}"
    unlimited = run(tmp_path / "whole", online_config(prompts, long))
    two_steps = spent(unlimited, iteration=0) + 2 * ROLLOUTS * (7 + 5)
    stood_in.clear()
    limit = f"budget.tokens={two_steps + ROLLOUTS * LONGEST}"
    with pytest.raises(BudgetReachedError, match=r"budget\.tokens"):
        run(tmp_path, online_config(prompts, long, limit))
    assert stood_in == [1, 2, 3]
    assert run_digest(run(tmp_path, online_config(prompts, long))) == run_digest(unlimited)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunConfig, Whole]:
    """A configuration, and the results of a run of it that nobody killed."""
    folder = tmp_path_factory.mktemp("online")
    config = online_config(write_prompts(folder))
    Attempt(lake=folder, work=partial(turned, config=config)).finish()
    return config, seen(folder)


PLACES = ("stage_file.rename.before#2", "journal.commit.before#10", "checkpoint.published")


@pytest.mark.parametrize("place", PLACES)
def test_kill_while_steps_are_committed(
    tmp_path: Path, uninterrupted: tuple[RunConfig, Whole], place: str
):
    config, whole = uninterrupted
    with quick_folder(tmp_path) as lake:
        work = partial(turned, config=config)
        assert Attempt(lake=lake, work=work, points={place: "kill"}).start() == KILLED
        Attempt(lake=lake, work=work).finish()
        assert seen(lake) == whole


@pytest.mark.usefixtures("stood_in")
def test_left_out_prompts(tmp_path: Path, prompts: Path, monkeypatch: pytest.MonkeyPatch):
    """In each step, two prompts do not fit and one is refused; the last step is empty."""
    before = online.step_rows

    def step_rows(job: OnlineJob, step: int, asked: Sequence[PromptToSample], method: Method):
        found = before(job, step, asked, method)
        counted = statistics(job.iteration, method, step, {LEFT_OUT: 2.0, REFUSED: 1.0})
        if step < STEPS:
            return replace(found, statistics=[*found.statistics, *counted])
        return StepRows(candidates=[], rewards=[], rollouts=[], statistics=counted)

    monkeypatch.setattr(online, "step_rows", step_rows)
    folder = run(tmp_path, online_config(prompts))
    reader = RunReader(folder)
    stages = {s.stage: s for s in progress(reader.journal, running=False) if s.iteration == 1}
    remarks = [event["remark"] for event in reader.journal.events("remark")]
    reader.close()
    assert (stages["ppo"].done, stages["ppo"].rows) == (STEPS, (STEPS - 1) * ROLLOUTS)
    [told] = [remark for remark in remarks if "leave no room" in remark]
    assert told.startswith("2 prompts")
    assert "training.ppo.max_length" in told
    [told] = [remark for remark in remarks if "chat template" in remark]
    assert told.startswith("1 prompts")
