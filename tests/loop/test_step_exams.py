"""Policies that a training publishes on its way: examined, named, chosen, collected."""

from contextlib import closing
from functools import partial
from pathlib import Path

import polars as pl
import pytest
from crashing import Silent, write_prompts
from online_steps import STEPS, online_config, train

import lpfloop.loop.stages.publish
from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError
from lpfloop.loop.daemon.loop import Job, run_loop
from lpfloop.loop.evaluation.compare_runs import results
from lpfloop.loop.evaluation.step_exams import deciding_values
from lpfloop.loop.lake.query.model_names import checkpoints, model_of, step_policies
from lpfloop.loop.lake.query.runs import NoSuchRunError, open_run
from lpfloop.loop.lake.trace.published_model import published_model
from lpfloop.loop.run.stop import Stopped, StopSignal
from lpfloop.policies.trainers.train_model import TrainJob
from lpfloop.stores.digest import run_digest
from lpfloop.stores.garbage import collect, garbage
from lpfloop.stores.inspection import damages
from lpfloop.stores.journal import Journal
from lpfloop.stores.lake import RunReader, run_folder

DEV = ("prompts.dev_share=0.2", "prompts.deciding=3", f"training.ppo.max_steps={STEPS}")
EVERY = (*DEV, "training.ppo.publish_every=3")
BEST = (*EVERY, "training.ppo.choose=best", "critic.kind=feedback")


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_prompts(tmp_path_factory.mktemp("prompts"))


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Train by the stand-in; the list says which steps it made."""
    steps: list[int] = []

    def note(_job: TrainJob, step: int) -> None:
        steps.append(step)

    monkeypatch.setattr(lpfloop.loop.stages.publish, "train", partial(train, before=note))
    return steps


def run(lake: Path, prompts: Path, *overrides: str, name: str = "a", fork: str | None = None):
    listener = Silent()
    job = Job(config=online_config(prompts, *overrides), lake=lake, name=name, fork=fork)
    run_loop(job, listener, StopSignal())
    return open_run(lake, name)


def ids(run: RunReader, table: str) -> list[str]:
    column = {"candidates": "candidate_id", "checkpoints": "checkpoint_id"}[table]
    return run.scan(table, iteration=1).select(column).collect()[column].to_list()


def test_each_is_a_checkpoint_of_its_own_with_its_step(tmp_path: Path, prompts: Path):
    reader = run(tmp_path, prompts, *EVERY)
    between, (initial, last) = step_policies(reader), checkpoints(reader)
    assert [(c.name, c.steps) for c in between] == [("M_1@3", 3), ("M_1@6", 6)]
    assert (last.name, last.steps) == ("M_1", STEPS)
    assert {c.parent_id for c in (*between, last)} == {initial.checkpoint_id}
    assert len({c.checkpoint_id for c in (*between, last)}) == 3
    assert not list(damages(reader.journal, deep=True))
    assert not list(garbage(reader.journal))
    scores = reader.scan("scores", iteration=1).collect()
    assert set(scores["benchmark"].unique()) == {
        "dev", "held-out", *(f"step-{step}:dev" for step in (3, 6, STEPS))
    }  # fmt: skip
    told = scores.filter(benchmark="step-3:dev")["checkpoint_id"].unique().to_list()
    assert told == [between[0].checkpoint_id]
    reader.close()


def test_the_steps_are_those_of_a_run_that_publishes_none(tmp_path: Path, prompts: Path):
    plain, every = (
        run(tmp_path / name, prompts, *DEV, *more)
        for name, more in (("plain", ()), ("every", EVERY))
    )
    for table in ("rollouts", "rewards", "statistics"):
        one, other = (r.scan(table, iteration=1).collect() for r in (plain, every))
        assert one.height
        assert one.sort(one.columns).equals(other.sort(one.columns))
    assert checkpoints(plain) == checkpoints(every)
    for reader in (plain, every):
        reader.close()


def test_a_fork_that_publishes_them_finds_the_steps_and_trains_for_the_policies_alone(
    tmp_path: Path, prompts: Path, made: list[int]
):
    run(tmp_path, prompts, *DEV).close()
    made.clear()
    reader = run(tmp_path, prompts, *EVERY, name="b", fork="a")
    assert made == list(range(1, STEPS + 1))
    assert [c.name for c in step_policies(reader)] == ["M_1@3", "M_1@6"]
    reader.close()


def test_the_best_by_dev_prompts_is_the_policy_of_the_iteration(tmp_path: Path, prompts: Path):
    reader = run(tmp_path, prompts, *BEST, "training.ppo.held_out_each=true")
    every = step_policies(reader)
    assert [c.name for c in every] == ["M_1@3", "M_1@6", f"M_1@{STEPS}"]
    (_, chosen) = checkpoints(reader)
    scores = reader.scan("scores", iteration=1).collect()
    dev = scores.filter(pl.col("benchmark").str.ends_with(":dev"))
    benchmarks = {f"step-{c.steps}:dev": c.steps for c in every}
    found = deciding_values(dev, benchmarks)
    assert found is not None
    means = {step: sum(of.values()) / len(of) for step, of in found[1].items()}
    assert chosen.steps == min(s for s in means if means[s] == max(means.values()))
    assert chosen.checkpoint_id == next(c for c in every if c.steps == chosen.steps).checkpoint_id
    assert set(scores.filter(benchmark="held-out")["checkpoint_id"]) == {chosen.checkpoint_id}
    assert model_of(reader, "M_1@6").checkpoint_id == every[1].checkpoint_id
    assert model_of(reader, every[1].checkpoint_id[:9]) == every[1]
    with pytest.raises(NoSuchRunError, match="M_1@6 "):
        model_of(reader, "M_1@4")
    page = published_model(reader, every[0])
    assert (page.name, page.split, page.state) == ("M_1@3", "held-out", "here")
    assert page.figures
    reader.close()
    (_, named) = results(tmp_path, ["a:M_1@3"])
    assert (named.method, named.checkpoint) == ("ppo@3", every[0].checkpoint_id)
    with pytest.raises(NoSuchRunError, match="give a, or a policy"):
        results(tmp_path, ["a:M_1"])


def test_what_was_not_chosen_goes_with_keep_and_its_rows_stay(tmp_path: Path, prompts: Path):
    reader = run(tmp_path, prompts, *BEST)
    (_, chosen) = checkpoints(reader)
    others = {c.checkpoint_id for c in step_policies(reader)} - {chosen.checkpoint_id}
    reader.close()
    with closing(Journal(run_folder(tmp_path, "a"))) as journal:
        assert not garbage(journal)
        found = garbage(journal, keep=1)
        assert {piece.path.name for piece in found} == others
        assert {piece.reason for piece in found} == {"published on the way, and not chosen"}
        collect(journal, found)
    reader = open_run(tmp_path, "a")
    assert len(step_policies(reader)) == 3
    assert not list(damages(reader.journal, deep=True))
    gone = {c for c in step_policies(reader) if published_model(reader, c).state == "removed"}
    assert {c.checkpoint_id for c in gone} == others
    reader.close()


def test_killed_and_resumed_it_publishes_the_same(
    tmp_path: Path, prompts: Path, monkeypatch: pytest.MonkeyPatch
):
    whole = run(tmp_path / "whole", prompts, *BEST)

    def cut(_job: TrainJob, step: int) -> None:
        if step == 5:
            raise Stopped

    monkeypatch.setattr(lpfloop.loop.stages.publish, "train", partial(train, before=cut))
    with pytest.raises(Stopped):
        run(tmp_path / "cut", prompts, *BEST)
    monkeypatch.setattr(lpfloop.loop.stages.publish, "train", train)
    again = run(tmp_path / "cut", prompts, *BEST)
    assert run_digest(again.folder) == run_digest(whole.folder)
    for reader in (whole, again):
        reader.close()


def test_there_is_no_choosing_without_dev_prompts(tmp_path: Path, prompts: Path):
    with pytest.raises(ConfigError, match=r"training\.ppo\.choose is best.*prompts\.dev_share"):
        run(tmp_path, prompts, "training.ppo.publish_every=3", "training.ppo.choose=best")


@pytest.mark.parametrize("setting", ["choose=best", "held_out_each=true"])
def test_there_is_no_choosing_among_one(prompts: Path, setting: str):
    with pytest.raises(ConfigError, match=f"{setting} is about policies"):
        load_config("tiny", "quark", (f"training.quark.{setting}",), {})
