"""A run commits the supervised set once, without held-out prompts; every training reads it."""

import json
from pathlib import Path

import polars as pl
import pytest
from world import Silent, small_config, write_prompts
from world import train as train_quickly

import lpfloop.loop.stages.publish
from lpfloop.configs.schema import RunConfig
from lpfloop.loop.daemon.loop import Job, run_loop
from lpfloop.loop.data.files import InputError
from lpfloop.loop.data.filter_counts import KEPT
from lpfloop.loop.run.stop import StopSignal
from lpfloop.policies.trainers.job import TrainJob
from lpfloop.policies.trainers.train_model import TrainResult
from lpfloop.stores.lake import RunReader, run_folder

WEIGHT = "training.next_token.weight=0.25"


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[TrainJob]:
    """Train with the fakes; the list contains the jobs."""
    made: list[TrainJob] = []

    def train(job: TrainJob, **told: object) -> TrainResult:
        assert all(path.is_file() for path in job.files)
        made.append(job)
        return train_quickly(job)

    monkeypatch.setattr(lpfloop.loop.stages.publish, "train", train)
    return made


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    """Ten answers: to six of the run's eight prompts, and to four others; two prompts lack one."""
    asked = [json.loads(row)["prompt"] for row in write_prompts(tmp_path).read_text().splitlines()]
    rows = [{"prompt": text, "output": f"It is {n}."} for n, text in enumerate(asked[:6])]
    rows += [{"prompt": text} for text in asked[6:]]
    rows += [{"prompt": f"Say {n}.", "output": str(n)} for n in range(4)]
    path = tmp_path / "answers.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run(lake: Path, config: RunConfig, *, name: str = "a", fork: str | None = None) -> RunReader:
    run_loop(Job(config=config, lake=lake, name=name, fork=fork), Silent(), StopSignal())
    return RunReader(run_folder(lake, name))


def configured(tmp_path: Path, answers: Path, *overrides: str) -> RunConfig:
    named = f"training.next_token.source={answers}"
    return small_config(tmp_path / "prompts.jsonl", named, *overrides)


def test_two_iterations_learn_committed_set(tmp_path: Path, answers: Path, jobs: list[TrainJob]):
    run(tmp_path, configured(tmp_path, answers, WEIGHT, "iterations=1")).close()
    # The second iteration reads the set from the file packed at the end of the first run.
    reader = run(tmp_path, configured(tmp_path, answers, WEIGHT))
    told = reader.scan("filter_counts").filter(pl.col("filter") == "next-token").collect()
    counts = dict(told.group_by("outcome").agg(pl.col("count").sum()).iter_rows())
    rows = reader.scan("demonstrations").collect()
    prompts = reader.scan("prompts").collect()
    candidates = reader.scan("candidates").filter(pl.col("kind") == "external").collect()
    reader.close()
    held_out = set(prompts.filter(pl.col("split") == "held-out")["prompt_id"])
    dev = set(prompts.filter(pl.col("split") == "dev")["prompt_id"])
    assert sum(counts.values()) == 12
    assert (counts["held_out"], counts["dev"]) == (len(held_out), len(dev))
    assert held_out
    assert dev
    assert counts[KEPT] == rows.height == candidates.height
    assert not (held_out | dev) & set(rows["prompt_id"])
    # The lake stores all these prompts, including those outside the run.
    assert prompts["prompt_id"].n_unique() == prompts.height == 8 + 4
    assert set(rows["rule"]) == {"next_token"}
    assert set(rows["candidate_id"]) == set(candidates["candidate_id"])
    assert len(jobs) == 2
    for job in jobs:
        assert job.supervised is not None
        assert (job.supervised.weight, job.supervised.batch_size) == (0.25, 16)
    # Equal rows give the same file, named by its hash.
    first, second = (path.name for job in jobs for path in job.files[len(job.data) :])
    assert first == second


def test_source_without_answers_is_refused(tmp_path: Path):
    config = small_config(write_prompts(tmp_path), WEIGHT)
    with pytest.raises(InputError, match=r"holds no `output` .* training\.next_token\.source"):
        run(tmp_path, config)
    assert not run_folder(tmp_path, "a").exists()
