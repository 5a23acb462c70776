"""UltraFeedback's methods in the tiny world: graded, binarised, mixed, really trained."""

import json
from pathlib import Path

import polars as pl
import pytest
from world import Silent

from lpfloop.configs.load import load_config
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.run.stop import StopSignal

pytestmark = pytest.mark.model

SMALL = (
    "policy.engine.kind=scripted",
    "policy.engine.script=scripts:conditioned_policy",
    "critic.kind=verifier",
    "iterations=1",
    "prompts.per_iteration=40",
    "prompts.max_test=6",
    "prompts.max_dev=6",
    "prompts.chunk=10",
    "prompts.parts={sft: 0, preference: 24, unlabeled: 16}",
    "assessment.kl=false",
    "assessment.reference=null",
    "training.min_pairs=4",
    "training.reward={learning_rate: 1.0e-4, epochs: 1, batch_size: 8, micro_batch_size: 8}",
    "training.reward.held_out=2",
    "training.dpo={learning_rate: 5.0e-5, epochs: 1, batch_size: 8, micro_batch_size: 8}",
)
MIXED = 9


class Listener(Silent):
    """Keeps the names of stages with pending work, and the notes."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.notes: list[str] = []

    def begin(self, iteration: int, stage: str, *, planned: int, done: int) -> None:
        if done < planned:
            self.begun.append(stage)

    def note(self, text: str, event: str = "note", **_: object) -> None:
        self.notes.append(text)


def turn(lake: Path, recipe: str, *overrides: str, fork: str | None = None) -> Listener:
    """Run a recipe as a run of the same name."""
    config = load_config("tiny", recipe, (*SMALL, *overrides), {})
    listener = Listener()
    run_loop(Job(config=config, lake=lake, name=recipe, fork=fork), listener, StopSignal())
    return listener


@pytest.fixture(scope="module")
def mix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Preferences of other people."""
    path = tmp_path_factory.mktemp("mix") / "mix.jsonl"
    rows = [
        {"prompt": f"Count to {n}.", "chosen": f"1 to {n}.", "rejected": "No."}
        for n in range(MIXED)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, mix: Path) -> Path:
    """A lake with a run of `ultrafeedback-dpo` that mixes in a file."""
    folder = tmp_path_factory.mktemp("ultrafeedback") / "lake"
    told = turn(folder, "ultrafeedback-dpo", f"recipe.mix=[{mix}]")
    assert any(note.startswith("dpo: ") for note in told.notes)
    return folder


def test_pairs_of_grades_and_mix(lake: Path):
    run = open_run(lake, "ultrafeedback-dpo")
    pairs = run.scan("pairs", iteration=1).collect()
    filter_counts = run.scan("filter_counts", iteration=1).collect()
    candidates = run.scan("candidates", iteration=1).collect()
    run.close()
    rules = dict(pairs.group_by("rule").len().iter_rows())
    assert set(rules) == {"mean-vs-random", "imported"}
    assert rules["imported"] == MIXED
    graded = pairs.filter(pl.col("rule") == "mean-vs-random")
    assert (graded["chosen_reward"] > graded["rejected_reward"]).all()
    binarised = filter_counts.filter(pl.col("filter") == "binarise:mean-vs-random")
    assert binarised["count"].sum() == 24
    kept = binarised.filter(pl.col("outcome") == "kept")["count"].sum()
    assert kept == graded.height
    mixed = filter_counts.filter((pl.col("filter") == "mix") & (pl.col("outcome") == "kept"))
    assert mixed["count"].sum() == MIXED
    sides = {*pairs["chosen_id"], *pairs["rejected_id"]}
    assert sides <= set(candidates["candidate_id"])


def test_best_of_n_by_reward_model(lake: Path):
    # Starts from another model than M_0, here given by its prompt format, with score margins.
    overrides = (
        "training.reward.model=tiny",
        "training.reward.template=alpaca",
        "training.reward.margin=0.1",
        "recipe.most=4",
        "recipe.binarisation=overall",
    )
    told = turn(lake, "ultrafeedback-bon", *overrides, fork="ultrafeedback-dpo")
    assert "grade:complete:overall" in told.begun
    assert not any(stage.startswith("complete:") for stage in told.begun)
    assert any(note.startswith("reward model: ") for note in told.notes)
    run = open_run(lake, "ultrafeedback-bon")
    pairs = run.scan("pairs", iteration=1).collect()
    metrics = run.scan("evaluations", iteration=1).collect()
    begun_as = run.scan("reward_models").collect()["parent_id"].item()
    initial = run.scan("checkpoints", iteration=0).collect()["checkpoint_id"].item()
    run.close()
    assert begun_as != initial
    assert set(pairs["rule"]) == {"overall"}
    assert set(metrics["benchmark"]) >= {"best-of-4"}
