"""AlpacaFarm's methods without online sampling, on scripted answers.

Reward models really train, for a few steps; a fake trains the policies.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
import world

from lpfloop.configs.load import load_config
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.run.stop import StopSignal
from lpfloop.loop.stages import publish
from lpfloop.policies.trainers.job import TrainJob
from lpfloop.policies.trainers.train_model import TrainResult
from lpfloop.stores.garbage import garbage
from lpfloop.stores.inspection import damages
from lpfloop.stores.lake import RunReader
from lpfloop.stores.sealed import check_folder

pytestmark = pytest.mark.model


SMALL = (
    "policy.engine.kind=scripted",
    "policy.engine.script=scripts:conditioned_policy",
    "critic.kind=verifier",
    "prompts.per_iteration=72",
    "prompts.max_test=6",
    "prompts.max_dev=6",
    "prompts.chunk=10",
    "prompts.parts={sft: 24, preference: 24, unlabeled: 24}",
    "assessment.kl=false",
    "annotation.flip_probability=0",
    "training.min_pairs=4",
    "training.reward={learning_rate: 1.0e-4, epochs: 2, batch_size: 8, micro_batch_size: 8}",
    "training.reward.held_out=2",
    "training.dpo={learning_rate: 5.0e-5, epochs: 1, batch_size: 8, micro_batch_size: 8}",
    "training.sft={learning_rate: 1.0e-4, epochs: 1, batch_size: 8, micro_batch_size: 8}",
)


def turn(lake: Path, recipe: str, *overrides: str, fork: str | None = None) -> list[str]:
    """Run a recipe as a run of the same name; return its notes of trainings."""
    config = load_config("tiny", recipe, (*SMALL, "iterations=1", *overrides), {})
    listener = world.Telling()
    run_loop(Job(config=config, lake=lake, name=recipe, fork=fork), listener, StopSignal())
    methods = ("dpo: ", "sft: ", "reward model: ")
    return [note for note in listener.notes if note.startswith(methods)]


@pytest.fixture(scope="module", autouse=True)
def stand_in() -> Iterator[None]:
    """Train only reward models for real."""
    real = publish.train

    def train(job: TrainJob, **more: object) -> TrainResult:
        return real(job, **more) if job.method == "reward" else world.train(job, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publish, "train", train)
        patch.setattr("lpfloop.loop.daemon.iterations.warm_trainer", lambda _: None)
        yield


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with the run of `reward-model`, whose shared results the others reuse."""
    folder = tmp_path_factory.mktemp("offline") / "lake"
    (note,) = turn(folder, "reward-model")
    assert "held-out accuracy" in note
    return folder


def rows(run: RunReader, table: str, iteration: int | None = None) -> pl.DataFrame:
    return run.scan(table, iteration=iteration).collect()


def test_reward_model_is_published(lake: Path):
    run = open_run(lake, "reward-model")
    (model,) = rows(run, "reward_models").to_dicts()
    initial, after = rows(run, "checkpoints").to_dicts()
    assert model["path"] == f"reward_models/{model['reward_model_id']}"
    check_folder(run.folder / model["path"], model["reward_model_id"])
    assert model["parent_id"] == initial["checkpoint_id"] == after["checkpoint_id"]
    assert json.loads(model["metrics"])["held_out/pairs"] >= 1
    assert after["recipe"] == "reward-model"
    assert set(rows(run, "pairs")["rule"]) == {"preferred"}
    assert list(damages(run.journal, deep=True)) == list(garbage(run.journal, keep=1)) == []
    run.close()


@pytest.mark.parametrize(
    ("recipe", "rules"),
    [
        ("dpo", {"preferred"}),
        ("reward-conditioning", {"conditioned_positive", "conditioned_negative"}),
        ("sft", {"people"}),
    ],
)
def test_policy_from_a_forked_run(lake: Path, recipe: str, rules: set[str]):
    (note,) = turn(lake, recipe, fork="reward-model")
    assert note.startswith("dpo: " if recipe == "dpo" else "sft: ")
    run = open_run(lake, recipe)
    learned = rows(run, "pairs" if recipe == "dpo" else "demonstrations", 1)
    assert set(learned["rule"]) == rules
    assert set(learned["candidate_id" if "candidate_id" in learned.columns else "chosen_id"]) <= (
        set(rows(run, "candidates")["candidate_id"])
    )
    initial, trained = rows(run, "checkpoints").to_dicts()
    assert trained["parent_id"] == initial["checkpoint_id"] != trained["checkpoint_id"]
    greedy = rows(run, "candidates", 1).filter(pl.col("kind") == "greedy")
    conditioned = recipe == "reward-conditioning"
    assert set(greedy["text"].str.starts_with("Gladly")) == {conditioned}
    run.close()


def test_best_of_n_curve(lake: Path):
    assert turn(lake, "best-of-n", "recipe.most=4", fork="reward-model") == []
    run = open_run(lake, "best-of-n")
    (model,) = rows(run, "reward_models")["reward_model_id"]
    check_folder(run.folder / "reward_models" / model, model)
    held_out = rows(run, "candidates", 1).filter(pl.col("prompt_id").is_in(prompts(run)))
    rewards = rows(run, "rewards").join(held_out, on="candidate_id")
    assert set(rewards["reward_model"]) == {model}
    assert rewards["score"].null_count() == 0
    best = rewards.group_by("prompt_id").agg(pl.col("score").max())["score"].mean()
    numbers = rows(run, "evaluations", 1)
    found = {(n["benchmark"], n["metric"]): n["value"] for n in numbers.to_dicts()}
    assert found["best-of-1", "expected_reward"] == pytest.approx(rewards["score"].mean())
    assert found["best-of-4", "expected_reward"] == pytest.approx(best)
    chosen = held_out.filter(pl.col("parent_id").is_not_null())
    assert chosen["parent_id"].n_unique() == chosen.height >= 6
    assert all(0 <= found[f"best-of-{n}", "win_rate"] <= 1 for n in (1, 2, 4))
    run.close()


def prompts(run: RunReader) -> list[str]:
    held_out = rows(run, "prompts").filter(pl.col("split") == "held-out")
    return held_out["prompt_id"].to_list()
