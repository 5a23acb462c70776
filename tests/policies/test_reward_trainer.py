"""A reward model trains for real: it learns its pairs, and is read as it is scored."""

import json
import math
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from statistics import pstdev
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from trainings import make_world, sha256, starts, write_pairs

from lpfloop.configs.methods import RewardTraining
from lpfloop.configs.schema import RewardConfig
from lpfloop.policies.engines.chat import ChatTokenizer
from lpfloop.policies.engines.chat_template import load_tokenizer
from lpfloop.policies.engines.engine import ScoreBatch, ScoreRequest
from lpfloop.policies.engines.thinking import AS_RENDERED
from lpfloop.policies.trainers.reward_trainer import encoded, parted_pairs
from lpfloop.policies.trainers.train_model import (
    TrainerProgress,
    TrainingError,
    TrainJob,
    TrainResult,
    train,
)
from lpfloop.policies.trainers.trainer_steps import STEPS, parse_row, read_steps
from lpfloop.policies.workers.open import open_scorer
from lpfloop.stores.records import Message

pytestmark = pytest.mark.model

SETTINGS = RewardTraining(
    learning_rate=1e-3, batch_size=8, micro_batch_size=4, max_length=128, epochs=2.0
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"))


def reward_job(world: Path, output: Path, **more: Any) -> TrainJob:
    parts = (world / "pairs-1.parquet", world / "pairs-2.parquet")
    return TrainJob(
        method="reward", model=world / "model", reference=None, data=parts, output=output,
        settings=SETTINGS, seed=2**40 + 7, **more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def trained(world: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainJob, TrainResult]:
    work = tmp_path_factory.mktemp("trained")
    job = reward_job(world, work / "work")
    return job, train(job, log=work / "train.log")


def test_it_ranks_pairs_that_it_never_saw(trained: tuple[TrainJob, TrainResult]):
    job, result = trained
    assert result.metrics["held_out/pairs"] == 9
    assert result.metrics["held_out/accuracy"] > 0.9
    assert result.metrics["accuracy"] > 0.9
    told = json.loads((job.output / "result.json").read_text())
    assert told["rows"] == 96 - 9


def test_the_l2_term_keeps_scores_near_zero_and_each_step_tells_of_them(
    world: Path, tmp_path: Path, trained: tuple[TrainJob, TrainResult]
):
    settings = SETTINGS.model_copy(update={"l2_weight": 0.5})
    job = replace(reward_job(world, tmp_path / "work"), settings=settings)
    result = train(job, log=tmp_path / "log")
    steps = {name: read_steps(own / STEPS) for name, own in {
        "with": job.output, "without": trained[0].output
    }.items()}  # fmt: skip
    for first, *_ in steps.values():
        assert first.metrics["chosen/sd"] > 0
        both = (first.metrics["chosen/mean"] + first.metrics["rejected/mean"]) / 2
        assert both == pytest.approx(first.metrics["mean_reward"], abs=1e-6)
    sizes = {name: abs(told[-1].metrics["rejected/mean"]) for name, told in steps.items()}
    assert sizes["with"] < sizes["without"] / 2
    assert result.metrics["held_out/accuracy"] == trained[1].metrics["held_out/accuracy"]


def test_all_pairs_of_a_prompt_are_kept_aside_or_none(world: Path, tmp_path: Path):
    again = write_pairs(tmp_path / "again.parquet", 48)
    job = reward_job(world, tmp_path / "work")
    kept, aside = parted_pairs(replace(job, data=(*job.data, again)))
    asked = [{row["prompt"][0]["content"] for row in rows} for rows in (kept, aside)]
    assert not asked[0] & asked[1]
    assert len(kept) + len(aside) == 144
    assert 10 < len(aside) <= 14


def test_a_prompt_with_too_many_pairs_keeps_no_other_from_being_kept_aside(
    world: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    many = [write_pairs(tmp_path / f"many-{n}.parquet", 1, first=7) for n in range(30)]
    job = reward_job(world, tmp_path / "work")
    for seed in range(8):
        aside = parted_pairs(replace(job, data=(*job.data, *many), seed=seed))[1]
        assert len(aside) == (96 + 30) // 10
        assert "Count from 7." not in {row["prompt"][0]["content"] for row in aside}
    assert not caplog.records
    assert parted_pairs(replace(job, data=tuple(many)))[1] == []
    assert "no prompt has at most 3 pairs" in caplog.text


def test_the_pairs_kept_aside_tell_of_accuracy_length_and_spread(
    trained: tuple[TrainJob, TrainResult],
):
    job, result = trained
    metrics = result.metrics
    steps = read_steps(job.output / STEPS)
    means = [(s.metrics["chosen/mean"] + s.metrics["rejected/mean"]) / 2 for s in steps]
    assert metrics["spread"] == pytest.approx(pstdev(means))
    # "up" is never longer than "down": there is nothing to correlate with.
    assert not [name for name in metrics if "length_correlation" in name]
    assert metrics["held_out/neutral/pairs"] == metrics["held_out/pairs"]
    assert metrics["held_out/sd"] > 0


def test_the_first_loss_is_log_2_and_the_model_is_a_classifier_of_one_label(
    trained: tuple[TrainJob, TrainResult],
):
    job, result = trained
    first = json.loads((job.output / "metrics.jsonl").read_text().split("\n\n")[1])
    assert first["metrics"]["loss"] == pytest.approx(math.log(2), abs=0.1)
    config = json.loads((result.output / "config.json").read_text())
    assert config["architectures"] == ["LlamaForSequenceClassification"]
    assert (result.output / "tokenizer.json").exists()


def test_the_same_job_gives_the_same_bytes_and_another_seed_another_head(
    world: Path, tmp_path: Path, trained: tuple[TrainJob, TrainResult]
):
    again = train(reward_job(world, tmp_path / "again"), log=tmp_path / "log")
    other = replace(reward_job(world, tmp_path / "other"), seed=1)
    weights = "model.safetensors"
    assert sha256(again.output / weights) == sha256(trained[1].output / weights)
    assert sha256(train(other, log=tmp_path / "log").output / weights) != sha256(
        again.output / weights
    )


def test_a_tokenizer_that_pads_with_the_end_token_changes_nothing(
    world: Path, tmp_path: Path, trained: tuple[TrainJob, TrainResult]
):
    model = shutil.copytree(world / "model", tmp_path / "model")
    told = json.loads((model / "tokenizer_config.json").read_text())
    told["pad_token"] = told["eos_token"]
    (model / "tokenizer_config.json").write_text(json.dumps(told))
    job = replace(reward_job(world, tmp_path / "work"), model=model)
    result = train(job, log=tmp_path / "log")
    weights = "model.safetensors"
    assert sha256(result.output / weights) == sha256(trained[1].output / weights)


def test_a_killed_training_goes_on_and_ends_bit_equal(
    world: Path,
    tmp_path: Path,
    trained: tuple[TrainJob, TrainResult],
    monkeypatch: pytest.MonkeyPatch,
):
    job = reward_job(world, tmp_path / "work")
    # However late this process looks, the training is not over.
    monkeypatch.setenv("LPFLOOP_FAILPOINT", "trainer.checkpoint.sealed#12:stop")

    def kill(progress: TrainerProgress) -> None:
        if progress.step == 9:
            rows = map(parse_row, (job.output / "metrics.jsonl").read_text().splitlines())
            os.kill(next(r["pid"] for r in rows if r and r["event"] == "start"), signal.SIGKILL)

    with pytest.raises(TrainingError, match="killed by SIGKILL"):
        train(job, log=tmp_path / "log", on_progress=kill, checkpoint_minutes=0)
    monkeypatch.delenv("LPFLOOP_FAILPOINT")
    resumed = train(job, log=tmp_path / "log")
    first, again = starts(job.output)
    assert first == 0
    assert again >= 8
    assert resumed.history == trained[1].history
    assert resumed.metrics["held_out/accuracy"] == trained[1].metrics["held_out/accuracy"]
    weights = "model.safetensors"
    assert sha256(resumed.output / weights) == sha256(trained[1].output / weights)


def test_what_is_scored_depends_on_whether_the_end_is_seen(
    tmp_path: Path, trained: tuple[TrainJob, TrainResult]
):
    conversation = (
        Message(role="user", content="Count from 3."),
        Message(role="assistant", content="up 3 4"),
    )
    told = {}
    for sees_end in (True, False):
        config = RewardConfig(sees_end=sees_end)
        scorer = open_scorer(trained[1].output, config, log=tmp_path / "log")
        request = ScoreRequest(request_id="a", messages=conversation)
        (result,) = scorer.score([ScoreBatch(key="a", requests=(request,))])
        scorer.close()
        (told[sees_end],) = result.scores
    assert told[True] != told[False]


def test_it_learns_from_cut_answers_that_an_end_is_better(world: Path, tmp_path: Path):
    """The two sides of each pair have the same text; of one the answer was cut off."""
    parts = list[Path]()
    for part in ("pairs-1.parquet", "pairs-2.parquet"):
        table = pq.read_table(world / part)
        table = table.set_column(table.column_names.index("rejected"), "rejected", table["chosen"])
        cut = pa.array([True] * len(table))
        parts.append(tmp_path / part)
        pq.write_table(table.append_column("rejected_cut", cut), parts[-1])
    job = replace(reward_job(world, tmp_path / "work"), data=tuple(parts))
    chat = ChatTokenizer(load_tokenizer(job.model), job.model, AS_RENDERED)
    for row in encoded(job, parted_pairs(job)[0], chat):
        whole, begun = row["chosen_ids"], row["rejected_ids"]
        assert whole[: len(begun)] == begun
        assert whole[len(begun)] in chat.stops
    result = train(job, log=tmp_path / "log")
    assert result.metrics["held_out/accuracy"] > 0.9


def test_a_model_whose_template_shows_no_end_is_refused_before_it_is_trained(
    world: Path, tmp_path: Path
):
    shutil.copytree(world / "model", tmp_path / "endless")
    for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
        path = tmp_path / "endless" / name
        if path.exists():
            told = json.loads(path.read_text())
            path.write_text(json.dumps({**told, "eos_token": None, "eos_token_id": None}))
    job = replace(reward_job(world, tmp_path / "work"), model=tmp_path / "endless")
    chat = ChatTokenizer(load_tokenizer(job.model), job.model, AS_RENDERED)
    with pytest.raises(TrainingError, match=r"set reward\.sees_end=false"):
        encoded(job, parted_pairs(job)[0], chat)
    assert encoded(replace(job, sees_end=False), parted_pairs(job)[0], chat)


def test_pairs_that_are_all_too_long_are_refused(world: Path, tmp_path: Path):
    settings = SETTINGS.model_copy(update={"max_length": 16})
    job = replace(reward_job(world, tmp_path / "work"), settings=settings)
    with pytest.raises(TrainingError, match="no pair of at most 16 tokens"):
        train(job, log=tmp_path / "log")


def test_a_cosine_can_end_at_a_share_of_the_peak(world: Path, tmp_path: Path):
    settings = SETTINGS.model_copy(update={"min_rate": 0.1, "warmup_ratio": 0.0, "held_out": 0})
    job = replace(reward_job(world, tmp_path / "work"), settings=settings)
    train(job, log=tmp_path / "log")
    rates = [step.metrics["learning_rate"] for step in read_steps(job.output / STEPS)]
    peak = SETTINGS.learning_rate
    assert rates[0] == pytest.approx(peak)
    done = len(rates) - 1
    last = (1 + math.cos(math.pi * done / len(rates))) / 2
    assert rates[-1] == pytest.approx(peak * (0.1 + 0.9 * last))


def test_margins_without_scores_are_refused(world: Path, tmp_path: Path):
    settings = SETTINGS.model_copy(update={"margin": 1.0})
    job = replace(reward_job(world, tmp_path / "work"), settings=settings)
    with pytest.raises(TrainingError, match="none of the 87 pairs has scores"):
        train(job, log=tmp_path / "log")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"min_rate": 0.1, "scheduler": "linear"}, "where scheduler=cosine ends"),
        ({"template": "alpaca"}, "set model, too"),
    ],
)
def test_settings_without_effect_are_refused(settings: dict[str, Any], told: str):
    with pytest.raises(ValueError, match=told):
        RewardTraining(**settings)
