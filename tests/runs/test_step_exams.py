"""Policies that a training publishes before its end: evaluated, named, chosen, collected."""

from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from online import STEPS, online_config, train_online
from world import Silent, write_prompts

import lpfloop.loop.stages.publish
from lpfloop.configs.schema import ConfigError
from lpfloop.loop.daemon.loop import Job, run_loop
from lpfloop.loop.evaluation.compare_runs import results
from lpfloop.loop.evaluation.step_eval_sets import deciding_values
from lpfloop.loop.lake.query.model_names import checkpoints, model_of, step_policies
from lpfloop.loop.lake.query.runs import NoSuchRunError, open_run
from lpfloop.loop.lake.trace.published_model import published_model
from lpfloop.loop.run.stop import StopSignal
from lpfloop.stores.garbage import collect, garbage
from lpfloop.stores.inspection import damages
from lpfloop.stores.journal import Journal
from lpfloop.stores.lake import run_folder

DEV = ("prompts.dev_share=0.2", "prompts.max_dev=3", f"training.ppo.max_steps={STEPS}")
EVERY = (*DEV, "training.ppo.publish_every=3")
BEST = (*EVERY, "training.ppo.choose=best", "critic.kind=feedback")


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_prompts(tmp_path_factory.mktemp("prompts"))


@pytest.fixture(autouse=True)
def trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train with the fake."""
    monkeypatch.setattr(lpfloop.loop.stages.publish, "train", train_online)


def run(lake: Path, prompts: Path, *overrides: str):
    config = online_config(prompts, *overrides)
    run_loop(Job(config=config, lake=lake, name="a"), Silent(), StopSignal())
    return open_run(lake, "a")


def test_each_step_is_a_checkpoint(tmp_path: Path, prompts: Path):
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


def test_the_best_by_dev_is_chosen(tmp_path: Path, prompts: Path):
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
    other = next(c for c in every if c.checkpoint_id != chosen.checkpoint_id)
    assert model_of(reader, other.checkpoint_id[:9]) == other
    with pytest.raises(NoSuchRunError, match="M_1@6 "):
        model_of(reader, "M_1@4")
    reader.close()
    (_, named) = results(tmp_path, ["a:M_1@3"])
    assert (named.method, named.checkpoint) == ("ppo@3", every[0].checkpoint_id)
    with pytest.raises(NoSuchRunError, match="give a, or a checkpoint"):
        results(tmp_path, ["a:M_1"])


def test_unchosen_steps_are_collected(tmp_path: Path, prompts: Path):
    reader = run(tmp_path, prompts, *BEST)
    (_, chosen) = checkpoints(reader)
    others = {c.checkpoint_id for c in step_policies(reader)} - {chosen.checkpoint_id}
    reader.close()
    with closing(Journal(run_folder(tmp_path, "a"))) as journal:
        assert not garbage(journal)
        found = garbage(journal, keep=1)
        assert {piece.path.name for piece in found} == others
        assert {piece.reason for piece in found} == {"published during training, and not chosen"}
        collect(journal, found)
    reader = open_run(tmp_path, "a")
    assert len(step_policies(reader)) == 3
    assert not list(damages(reader.journal, deep=True))
    gone = {c for c in step_policies(reader) if published_model(reader, c).state == "removed"}
    assert {c.checkpoint_id for c in gone} == others
    reader.close()


def test_choosing_needs_dev_prompts(tmp_path: Path, prompts: Path):
    with pytest.raises(ConfigError, match=r"training\.ppo\.choose is best.*prompts\.dev_share"):
        run(tmp_path, prompts, "training.ppo.publish_every=3", "training.ppo.choose=best")
