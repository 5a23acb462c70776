"""People's labels train for real: from a file, and from imported runs, on published comparisons.

What learns is the tiny policy, whose context is short: of long answers it sees the beginning.
"""

import json
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import polars as pl
import pytest
from commands import call

from lpfloop.configs.load import load_config
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.daemon.run_request import RunOptions
from lpfloop.loop.daemon.training_job import TrainingRequest, training_job
from lpfloop.loop.lake.imports.import_files import Import, import_files
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.run.reporter import Advance
from lpfloop.loop.run.stop import StopSignal

pytestmark = pytest.mark.model

ROWS = 30
SMALL = (
    "policy.engine.kind=scripted",
    "policy.engine.script=scripts:conditioned_policy",
    "critic.kind=verifier",
    "iterations=1",
    "prompts.per_iteration=12",
    "prompts.evaluated=2",
    "prompts.deciding=2",
    "prompts.chunk=4",
    "assessment.kl=false",
    "assessment.reference=null",
    "training.min_pairs=4",
    "training.reward={learning_rate: 1.0e-4, epochs: 1, batch_size: 8, micro_batch_size: 8}",
    "training.reward={held_out: 4, max_length: 128}",
    "training.dpo={learning_rate: 5.0e-5, epochs: 1, batch_size: 8, micro_batch_size: 8}",
    "training.dpo.max_length=128",
    "training.sft={learning_rate: 1.0e-4, epochs: 1, batch_size: 8, micro_batch_size: 8}",
)


class Listener:
    """A reporter that keeps which stages had something to do, and what was noted."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.notes: list[str] = []

    def begin(self, iteration: int, stage: str, *, planned: int, done: int) -> None:
        if done < planned:
            self.begun.append(stage)

    def advance(self, iteration: int, stage: str, advance: Advance) -> None:
        pass

    def end(self, iteration: int, stage: str) -> None:
        pass

    def note(self, text: str) -> None:
        self.notes.append(text)


def worked(job: Job) -> Listener:
    listener = Listener()
    run_loop(job, listener, StopSignal())
    return listener


def turn(lake: Path, variant: str, *overrides: str) -> Listener:
    """Run a variant under its own name."""
    config = load_config("tiny", variant, (*SMALL, *overrides), {})
    return worked(Job(config=config, lake=lake, name=variant))


@pytest.fixture(scope="module")
def votes(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of PandaLM, on whose answers three people voted each."""
    path = tmp_path_factory.mktemp("votes") / "pandalm.jsonl"
    with (shared_data / "pandalm.jsonl").open() as file:
        path.write_text("".join(islice(file, ROWS)))
    return path


@pytest.fixture(scope="module")
def lake(votes: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A lake with those votes as a run."""
    folder = tmp_path_factory.mktemp("people") / "lake"
    import_files(Import(lake=folder, name="votes", files=(votes,)))
    return folder


def test_dpo_learns_what_most_people_preferred(tmp_path: Path, votes: Path) -> None:
    file = f"annotation.source=[{votes}]"
    told = turn(tmp_path, "dpo", file, "annotation.drop_cycles=true")
    assert any(note.startswith("trained by dpo") for note in told.notes)
    assert not any(stage.startswith(("sample:pref", "sample", "annotate")) for stage in told.begun)
    run = open_run(tmp_path, "dpo")
    pairs, said = (run.scan(name, iteration=1).collect() for name in ("pairs", "preferences"))
    receipts = run.scan("receipts", iteration=1).filter(pl.col("filter") == "labels").collect()
    run.close()
    assert set(pairs["rule"]) == {"preferred"}
    assert receipts["count"].sum() == ROWS
    kept = receipts.filter(pl.col("outcome") == "kept")["count"].sum()
    rows = [json.loads(row) for row in votes.read_text().splitlines()]
    clear = [
        row
        for row in rows
        if (by := [row[f"annotator{n}"] for n in (1, 2, 3)]).count(1) != by.count(2)
    ]
    assert len(clear) >= kept >= pairs.height > 0
    chosen = {row["response1"]: 1 for row in clear} | {row["response2"]: 2 for row in clear}
    assert {answer[0]["content"] for answer in pairs["chosen"]} <= set(chosen)
    assert said.height == 5 * kept
    assert turn(tmp_path, "dpo", file, "annotation.drop_cycles=true").begun == []


def test_feedme_imitates_what_people_preferred(lake: Path) -> None:
    told = turn(lake, "feedme", "annotation.source=[run:votes]")
    assert any(note.startswith("trained by sft") for note in told.notes)
    run, votes = open_run(lake, "feedme"), open_run(lake, "votes")
    shown = run.scan("demonstrations").select("candidate_id").collect()["candidate_id"]
    known = votes.scan("candidates").select("candidate_id").collect()["candidate_id"]
    run.close()
    votes.close()
    assert not shown.is_empty()
    assert set(shown) <= set(known), "an answer keeps its id, by which it is found in its own run"


def test_an_imported_run_trains_a_reward_model(lake: Path, tiny_policy: Path) -> None:
    options = RunOptions(config="tiny", policy=str(tiny_policy), settings=SMALL)
    wanted = TrainingRequest(reward=True, options=options)
    job = training_job(lake, "votes", wanted)
    assert job.config.annotation.source == ("run:votes",)
    told = worked(job)
    assert any("trained a reward model" in note for note in told.notes)
    run = open_run(lake, "votes-reward-model")
    (model,) = run.scan("reward_models").collect().to_dicts()
    run.close()
    assert 0 <= json.loads(model["metrics"])["accuracy"] <= 1
    assert worked(job).begun == []


def test_an_imported_run_needs_a_policy_and_a_run_with_a_loop_a_table(lake: Path) -> None:
    code, _, told = call(lake, "train", "votes")
    assert code == 2
    assert "run votes was imported and has no policy to train: name one with --policy" in told
    code, _, told = call(lake, "train", "votes", "--policy", "nowhere", "--derived", "none")
    assert code == 2
    assert "has no derived table 'none'" in told


@pytest.mark.slow
def test_published_preferences_train_a_reward_model_dpo_and_ppo(
    shared_data: Path, tmp_path: Path, tiny_policy: Path
) -> None:
    """Of 300 rows of UltraFeedback, some hundred pairs: a few steps of each method."""
    file = shared_data / "ultrafeedback_binarized_300.jsonl"
    import_files(Import(lake=tmp_path, name="uf", files=(file,)))
    few = {
        "LPFLOOP_POLICY__SAMPLING__MAX_TOKENS": "16",
        "LPFLOOP_EVALUATION__MAX_TOKENS": "16",
        "LPFLOOP_PROMPTS__EVALUATED": "4",
        "LPFLOOP_PROMPTS__DECIDING": "4",
        "LPFLOOP_POLICY__ENGINE__KIND": "transformers",
        "LPFLOOP_ASSESSMENT__KL": "false",
        "LPFLOOP_SMOKE__PROMPTS": "0",
    }
    batches = "{epochs: 1, batch_size: 16, micro_batch_size: 16, max_length: 256}"
    train = ("train", "uf", "--policy", tiny_policy, "--set")
    before = dict(os.environ)
    os.environ.update(few)
    try:
        for more in (
            (*train, f"training.reward={batches}", "--reward", "--run", "rm"),
            (*train, f"training.dpo={batches}", "--run", "dpo"),
        ):
            code, _, told = call(tmp_path, *more)
            assert code == 0, told
        rollouts = "{rollouts: 16, batch_size: 16, micro_batch_size: 8, max_steps: 3}"
        code, _, told = call(
            *(tmp_path, "run", "--variant", "ppo", "--run", "ppo", "--policy", tiny_policy),
            *("--set", "annotation.source=[run:uf]", "--set", f"training.reward={batches}"),
            *("--set", f"training.ppo={rollouts}", "--set", "assessment.reference=null"),
        )
        assert code == 0, told
    finally:
        os.environ.clear()
        os.environ.update(before)
    for name in ("rm", "dpo", "ppo"):
        run = open_run(tmp_path, name)
        pairs = run.scan("pairs").select("pair_id").collect()
        models = run.scan("checkpoints", iteration=1).collect()
        run.close()
        assert pairs.height > 200
        assert models.height == 1
