"""Thinking models in the loop: the judged, trained and stored parts of their output."""

import polars as pl
import pytest
from world import Telling, small_config, write_prompts
from world import train as stand_in

import lpfloop.loop.stages.publish
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.run.stop import StopSignal
from lpfloop.policies.trainers.job import TrainJob
from lpfloop.stores.lake import RunReader, run_folder

THINKING = (
    "policy.engine.script=scripts:thinking_policy",
    "critic.engine.script=scripts:thinking_critic",
    "policy.sampling.max_tokens=24",
    "evaluation.max_tokens=24",
    "prompts.per_iteration=6",
    "recipe.n=4",
    "iterations=1",
    "seed=1",
)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run the loop once; return the run, the notes, and the trained thoughts."""
    trained: list[dict[str, str] | None] = []

    def train(job: TrainJob, **options):
        file = job.turns.thoughts
        trained.append(None if file is None else dict(pl.read_parquet(file).iter_rows()))
        return stand_in(job, **options)

    monkeypatch.setattr(lpfloop.loop.stages.publish, "train", train)

    def turned(*settings: str):
        config = small_config(write_prompts(tmp_path), *THINKING, *settings)
        told = Telling()
        run_loop(Job(config=config, lake=tmp_path, name="a"), told, StopSignal())
        return RunReader(run_folder(tmp_path, "a")), told.notes, trained[-1]

    return turned


def test_thought_is_stored_apart(run):
    reader, notes, trained = run()
    drawn = reader.scan("candidates").filter(pl.col("policy").is_not_null()).collect()
    cut = drawn.filter(pl.col("finish_reason") == "truncated_thinking")
    whole = drawn.filter(pl.col("finish_reason") == "stop")
    assert 0 < cut.height < drawn.height == cut.height + whole.height
    assert set(cut["text"]) == {""}
    assert set(whole["reasoning"]) == {"hm hm"}
    assert whole["text"].str.starts_with("Okay. The answer is").all()
    said = reader.scan("critiques").collect().join(drawn, "candidate_id", suffix="_of")
    unasked = said.filter(pl.col("finish_reason") == "truncated_thinking")
    assert set(unasked["status"]) == {"truncated_thinking"}
    assert set(unasked["attempts"]) == {0}
    assert any("max_tokens" in note for note in notes)
    assert trained is None
    asked = reader.scan("critiques").filter(pl.col("attempts") > 0).collect()
    assert set(asked["status"]) == {"scored"}
    assert not asked["text"].str.contains("Perhaps").any()
    reader.close()


def test_thoughts_come_along(run):
    reader, _, thoughts = run("training.thought=own")
    drawn = reader.scan("candidates").collect()
    pairs = reader.scan("pairs").collect()
    reader.close()
    trained = {*pairs["chosen_id"], *pairs["rejected_id"]}
    wanted = drawn.filter(pl.col("candidate_id").is_in(sorted(trained)))
    assert thoughts == dict(wanted["candidate_id", "reasoning"].iter_rows())
