"""AlpacaFarm's methods without online sampling: every model is trained for real, a few steps.

Answers come from a script, annotators are the tiny world's, and what learns is the tiny policy.
"""

import json
import shutil
from pathlib import Path

import polars as pl
import pytest

from lpfloop.configs.load import load_config
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.run.reporter import Advance
from lpfloop.loop.run.stop import StopSignal
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
    "prompts.evaluated=6",
    "prompts.deciding=6",
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


class Listener:
    """A reporter that keeps what was noted."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def begin(self, iteration: int, stage: str, *, planned: int, done: int) -> None:
        pass

    def advance(self, iteration: int, stage: str, advance: Advance) -> None:
        pass

    def end(self, iteration: int, stage: str) -> None:
        pass

    def note(self, text: str) -> None:
        self.notes.append(text)


def turn(lake: Path, variant: str, *overrides: str, fork: str | None = None) -> list[str]:
    """Run a variant under its own name; return what was trained."""
    config = load_config("tiny", variant, (*SMALL, "iterations=1", *overrides), {})
    listener = Listener()
    run_loop(Job(config=config, lake=lake, name=variant, fork=fork), listener, StopSignal())
    return [note for note in listener.notes if note.startswith("trained")]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with the run of `reward-model`, from which the others take what they share."""
    folder = tmp_path_factory.mktemp("offline") / "lake"
    (note,) = turn(folder, "reward-model")
    assert "trained a reward model" in note
    assert "held_out/accuracy" in note
    return folder


def rows(run: RunReader, table: str, iteration: int | None = None) -> pl.DataFrame:
    return run.scan(table, iteration=iteration).collect()


def test_a_reward_model_is_published_and_the_policy_stays(lake: Path):
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


def test_the_steps_of_a_reward_model_stand_in_the_lake(lake: Path):
    run = open_run(lake, "reward-model")
    (model,) = rows(run, "reward_models").to_dicts()
    told = rows(run, "statistics")
    assert set(told["method"]) == {"reward"}
    by_step = told.pivot("metric", index="step", values="value").sort("step")
    assert by_step["step"].to_list() == list(range(1, model["steps"] + 1))
    means = (by_step["chosen/mean"] + by_step["rejected/mean"]) / 2
    metrics = json.loads(model["metrics"])
    assert metrics["spread"] == pytest.approx(means.std(ddof=0))
    assert by_step["accuracy"].is_between(0, 1).all()
    run.close()


CHATGLM = (
    "annotation.comparisons=all",
    "annotation.drop_cycles=true",
    "pairs.balance_length=true",
    "training.reward.l2_weight=0.05",
    "recipe.n=3",
    "recipe.best_of=3",
    "prompts.quality.judge=none",
    "prompts.variance.margin=null",
    "training.next_token.weight=0",
    "assessment.probes=null",
)


@pytest.mark.parametrize("variant", ["chatglm-dpo", "chatglm-rs"])
def test_the_reward_model_tells_apart_what_a_policy_learns_from_its_samples(
    lake: Path, variant: str
):
    notes = turn(lake, variant, *CHATGLM)
    assert [note.split(":")[0] for note in notes] == [
        "trained a reward model",
        "trained by dpo" if variant == "chatglm-dpo" else "trained by sft",
    ]
    run = open_run(lake, variant)
    compared = rows(run, "preferences").group_by("prompt_id").len()["len"]
    assert compared.max() == 3
    rules = set(rows(run, "pairs", 1)["rule"])
    assert {"preferred", "preferred/balanced"} <= rules
    assert ("reward_extremes/balanced" in rules) == (variant == "chatglm-dpo")
    filters = set(rows(run, "receipts", 1)["filter"].str.split("/").list.first())
    assert {"consistency", "balance_length"} <= filters
    (model,) = rows(run, "reward_models")["reward_model_id"]
    assert set(rows(run, "rewards", 1)["reward_model"]) >= {model}
    best = rows(run, "rewards", 1).group_by("prompt_id").agg(pl.col("score").max())
    if variant == "chatglm-rs":
        learned = rows(run, "demonstrations", 1).join(best, on="prompt_id")
        assert (learned["reward"] == learned["score"]).all()
    run.close()


@pytest.mark.parametrize(
    ("variant", "rules"),
    [
        ("dpo", {"preferred"}),
        ("feedme", {"preferred"}),
        ("reward-conditioning", {"conditioned_positive", "conditioned_negative"}),
        ("sft", {"people"}),
    ],
)
def test_a_policy_is_trained_from_what_another_run_has_annotated(
    lake: Path, variant: str, rules: set[str]
):
    (note,) = turn(lake, variant, fork="reward-model")
    assert note.startswith("trained by dpo" if variant == "dpo" else "trained by sft")
    run = open_run(lake, variant)
    learned = rows(run, "pairs" if variant == "dpo" else "demonstrations", 1)
    assert set(learned["rule"]) == rules
    assert set(learned["candidate_id" if "candidate_id" in learned.columns else "chosen_id"]) <= (
        set(rows(run, "candidates")["candidate_id"])
    )
    initial, trained = rows(run, "checkpoints").to_dicts()
    assert trained["parent_id"] == initial["checkpoint_id"] != trained["checkpoint_id"]
    greedy = rows(run, "candidates", 1).filter(pl.col("kind") == "greedy")
    conditioned = variant == "reward-conditioning"
    assert set(greedy["text"].str.starts_with("Gladly")) == {conditioned}
    run.close()


def test_best_of_n_scores_by_the_adopted_reward_model_and_draws_the_curve(lake: Path):
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
    assert found["best-of-4", "expected_true_score"] == pytest.approx(
        found["best-of-4", "true_score"]
    )
    chosen = held_out.filter(pl.col("parent_id").is_not_null())
    assert chosen["parent_id"].n_unique() == chosen.height >= 6
    assert all(0 <= found[f"best-of-{n}", "win_rate"] <= 1 for n in (1, 2, 4))
    compared = run.scan("preferences", stages=lambda label: label.startswith("compare:best"))
    # Whatever n it is the best for, a text is compared once.
    texts = chosen.select("prompt_id", "text").n_unique()
    assert compared.collect().height == chosen.height == texts < 3 * 6
    scores = rows(run, "scores", 1).filter(metric="win_rate", benchmark="best-of-1")
    answers = scores.join(chosen, on="candidate_id").select("prompt_id", "text")
    drawn = held_out.filter(pl.col("parent_id").is_null()).sort("candidate_id")
    firsts = drawn.group_by("prompt_id").first().select("prompt_id", "text")
    assert dict(answers.iter_rows()) == dict(firsts.iter_rows())
    run.close()


def test_best_of_n_without_a_reference_asks_nobody(lake: Path, tmp_path: Path):
    copy = tmp_path / "lake"
    shutil.copytree(lake / "runs" / "reward-model", copy / "runs" / "reward-model")
    turn(copy, "best-of-n", "recipe.most=2", "assessment.reference=null", fork="reward-model")
    run = open_run(copy, "best-of-n")
    labels = {state.stage for state in run.journal.stages()}
    assert "curve" in labels
    assert not [label for label in labels if label.startswith(("compare:", "best:fewer"))]
    run.close()


def prompts(run: RunReader) -> list[str]:
    held_out = rows(run, "prompts").filter(pl.col("split") == "held-out")
    return held_out["prompt_id"].to_list()


def test_expert_iteration_learns_the_best_of_n_and_each_round_begins_with_m0(lake: Path):
    overrides = ("recipe.best_of=3", "iterations=2", "reward.model=tiny")
    notes = turn(lake, "expert-iteration", *overrides)
    assert [note.split(":")[0] for note in notes] == ["trained by sft", "trained by sft"]
    run = open_run(lake, "expert-iteration")
    initial, first, second = rows(run, "checkpoints").sort("iteration").to_dicts()
    assert first["parent_id"] == second["parent_id"] == initial["checkpoint_id"]
    learned = rows(run, "demonstrations", 1)
    rewards = rows(run, "rewards", 1)
    best = rewards.group_by("prompt_id").agg(pl.col("score").max())
    both = learned.join(best, on="prompt_id")
    assert (both["reward"] == both["score"]).all()
    run.close()


def test_a_configured_reward_model_is_used_as_it_is(lake: Path):
    overrides = ("recipe.most=2", "reward.model=tiny")
    config = load_config("tiny", "best-of-n", (*SMALL, "iterations=1", *overrides), {})
    listener = Listener()
    run_loop(Job(config=config, lake=lake, name="configured"), listener, StopSignal())
    run = open_run(lake, "configured")
    assert rows(run, "reward_models").is_empty()
    assert rows(run, "pairs").is_empty()
    assert rows(run, "rewards")["score"].null_count() == 0
    run.close()


def test_a_damaged_reward_model_is_trained_again_to_the_same_bytes(lake: Path, tmp_path: Path):
    copy = tmp_path / "lake"
    shutil.copytree(lake / "runs" / "reward-model", copy / "runs" / "reward-model")
    run = open_run(copy, "reward-model")
    (model,) = rows(run, "reward_models")["reward_model_id"]
    weights = run.folder / "reward_models" / model / "model.safetensors"
    weights.chmod(0o600)
    weights.write_bytes(weights.read_bytes()[:-1] + b"\1")
    (found,) = damages(run.journal, deep=True)
    assert found.path == weights.parent
    run.close()
    notes = turn(copy, "best-of-n", "recipe.most=2", fork="reward-model")
    assert len(notes) == 1
    run = open_run(copy, "best-of-n")
    assert rows(run, "reward_models")["reward_model_id"].to_list() == [model]
    run.close()
