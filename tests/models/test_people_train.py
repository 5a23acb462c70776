"""Real trainings on people's labels: from imported runs, on published comparisons.

The tiny policy learns; its context is short, so it sees the beginning of long answers only.
"""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import polars as pl
import pytest
from world import Telling

from lpfloop.configs.load import load_config
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.daemon.run_request import RunOptions
from lpfloop.loop.daemon.training_job import TrainingRequest, training_job
from lpfloop.loop.lake.imports.import_files import Import, import_files
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.run.stop import StopSignal

pytestmark = pytest.mark.model

ROWS = 30
EXAMPLES = Path(__file__).parents[2] / "examples" / "imports"
SMALL = (
    "policy.engine.kind=scripted",
    "policy.engine.script=scripts:conditioned_policy",
    "critic.kind=verifier",
    "iterations=1",
    "prompts.per_iteration=12",
    "prompts.max_test=2",
    "prompts.max_dev=2",
    "prompts.chunk=4",
    "assessment.kl=false",
    "assessment.reference=null",
    "training.min_pairs=4",
    "training.reward={learning_rate: 1.0e-4, epochs: 1, batch_size: 8, micro_batch_size: 8}",
    "training.reward={held_out: 4, max_length: 128}",
    "training.dpo={learning_rate: 5.0e-5, epochs: 1, batch_size: 8, micro_batch_size: 8}",
    "training.dpo.max_length=128",
)


class Listener(Telling):
    """Keeps the notes, and the names of stages with pending work."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[str] = []

    def begin(self, iteration: int, stage: str, *, planned: int, done: int) -> None:
        if done < planned:
            self.begun.append(stage)


def worked(job: Job) -> Listener:
    listener = Listener()
    run_loop(job, listener, StopSignal())
    return listener


def turn(lake: Path, recipe: str, *overrides: str) -> Listener:
    """Run a recipe as a run of the same name."""
    config = load_config("tiny", recipe, (*SMALL, *overrides), {})
    return worked(Job(config=config, lake=lake, name=recipe))


@pytest.fixture(scope="module")
def votes(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of PandaLM with three people's votes on the answers."""
    path = tmp_path_factory.mktemp("votes") / "pandalm.jsonl"
    with (shared_data / "pandalm.jsonl").open() as file:
        path.write_text("".join(islice(file, ROWS)))
    return path


@pytest.fixture(scope="module")
def lake(votes: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A lake with those votes as a run."""
    folder = tmp_path_factory.mktemp("people") / "lake"
    layout = f"{EXAMPLES}/pandalm.py:rows"
    import_files(Import(lake=folder, name="votes", files=(votes,), form=layout))
    return folder


def test_dpo_learns_what_most_people_preferred(lake: Path, votes: Path) -> None:
    source = "annotation.source=[run:votes]"
    told = turn(lake, "dpo", source, "annotation.drop_cycles=true")
    assert any(note.startswith("dpo: ") for note in told.notes)
    assert not any(stage.startswith(("sample:pref", "sample", "annotate")) for stage in told.begun)
    run = open_run(lake, "dpo")
    pairs, said = (run.scan(name, iteration=1).collect() for name in ("pairs", "preferences"))
    counts = run.scan("filter_counts", iteration=1).filter(pl.col("filter") == "labels").collect()
    run.close()
    assert set(pairs["rule"]) == {"preferred"}
    assert counts["count"].sum() == ROWS
    kept = counts.filter(pl.col("outcome") == "kept")["count"].sum()
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
    assert turn(lake, "dpo", source, "annotation.drop_cycles=true").begun == []


def test_an_imported_run_trains_a_reward_model(lake: Path, tiny_policy: Path) -> None:
    options = RunOptions(config="tiny", policy=str(tiny_policy), settings=SMALL)
    wanted = TrainingRequest(reward=True, options=options)
    job = training_job(lake, "votes", wanted)
    assert job.config.annotation.source == ("run:votes",)
    told = worked(job)
    assert any(note.startswith("reward model: ") for note in told.notes)
    run = open_run(lake, "votes-reward-model")
    (model,) = run.scan("reward_models").collect().to_dicts()
    run.close()
    assert 0 <= json.loads(model["metrics"])["accuracy"] <= 1
    assert worked(job).begun == []
