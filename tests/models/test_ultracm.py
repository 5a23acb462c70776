"""A model learns the grader's critiques with their scores."""

import json
from pathlib import Path

import polars as pl
import pytest
from world import Silent

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import GradingConfig
from lpfloop.critics.grading.grader import Grader
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.data.lessons import GRADED_CRITIQUE
from lpfloop.loop.lake.derive.rebuild_pairs import DerivationRequest, rebuild_pairs
from lpfloop.loop.lake.imports.import_files import Import, import_files
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.run.stop import StopSignal
from lpfloop.stores.derived import DerivedError, scan_derived
from lpfloop.stores.lake import run_folder

pytestmark = pytest.mark.model


SMALL = (
    "iterations=1",
    "policy.engine.kind=scripted",
    "policy.engine.script=scripts:conditioned_policy",
    "critic.kind=verifier",
    "recipe.n=2",
    "prompts.per_iteration=12",
    "prompts.max_test=4",
    "prompts.max_dev=4",
    "prompts.chunk=6",
    "prompts.parts={sft: 0, preference: 8, unlabeled: 4}",
    "assessment.kl=false",
    "assessment.reference=null",
    "training.min_pairs=4",
    "training.sft={learning_rate: 1.0e-4, epochs: 1, batch_size: 8, micro_batch_size: 8}",
)


def job(lake: Path, recipe: str, *overrides: str) -> Job:
    config = load_config("tiny", recipe, (*SMALL, *overrides), {})
    return Job(config=config, lake=lake, name=recipe)


def rows(lake: Path, name: str, table: str) -> pl.DataFrame:
    run = open_run(lake, name)
    frame = run.scan(table, iteration=1).collect()
    run.close()
    return frame


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ultracm") / "lake"
    run_loop(job(folder, "ultracm"), Silent(), StopSignal())
    return folder


def test_every_critique_is_a_lesson(lake: Path):
    taught, grades = rows(lake, "ultracm", "demonstrations"), rows(lake, "ultracm", "grades")
    assert set(grades["aspect"]) == {"overall"}
    about = taught.join(grades, on="candidate_id", validate="1:1")
    assert about.height == grades.height == 16
    for said, rating in zip(about["completion"].to_list(), about["rating"], strict=True):
        assert said[0]["content"].endswith(f"Overall score: {rating:g}")
    assert (about["reward"] == about["rating"]).all()
    run = open_run(lake, "ultracm")
    told = rebuild_pairs(run, DerivationRequest(rule=GRADED_CRITIQUE)).derived
    run.close()
    again = scan_derived(run_folder(lake, "ultracm"), told.name, "demonstrations").collect()
    own = rows(lake, "ultracm", "demonstrations")
    assert again.sort("demonstration_id").equals(own.sort("demonstration_id"))


def published(path: Path, *completions: dict[str, object]) -> Path:
    row = {"source": "flan", "instruction": "Name a prime.", "completions": list(completions)}
    path.write_text(json.dumps(row) + "\n")
    return path


def completion(text: str, critique: str, score: object) -> dict[str, object]:
    return {
        "model": "m", "response": text, "critique": critique, "overall_score": score,
        "annotations": {}, "principle": "honesty", "custom_system_prompt": "Say what you doubt.",
    }  # fmt: skip


def test_published_critiques_are_lessons(tmp_path: Path):
    file = published(
        tmp_path / "uf.jsonl",
        completion("2", "Right, and\nwithout a word too much.", 8.5),
        completion("9", "It can be divided by three.", "2"),
        completion("x", "", 3),
        completion("y", "No number.", "N/A"),
        completion("z", "It may be either.", 10),
    )
    import_files(Import(lake=tmp_path / "lake", name="uf", files=(file,), form="ultrafeedback"))
    run = open_run(tmp_path / "lake", "uf")
    told = rebuild_pairs(run, DerivationRequest(rule=GRADED_CRITIQUE)).derived
    prompt = run.scan("prompts").collect().to_dicts()[0]
    with pytest.raises(DerivedError, match="--top-k"):
        rebuild_pairs(run, DerivationRequest(rule=GRADED_CRITIQUE, top_k=1))
    run.close()
    made = scan_derived(run.folder, told.name, "demonstrations").collect()
    said = [row[0]["content"] for row in made["completion"].to_list()]
    assert said == [
        "Right, and\nwithout a word too much.\n\nOverall score: 8.5",
        "It can be divided by three.\n\nOverall score: 2",
    ]
    grader = Grader.from_config(GradingConfig())
    asked = made["prompt"].to_list()[0][0]["content"]
    assert prompt["messages"][0]["content"] in asked
    assert "Say what you doubt." in asked
    assert asked.startswith(grader.templates["overall"].partition("{")[0])
    found = told.lineage["found"]
    assert found == {"outcomes": {"kept": 2, "not_applicable": 1, "unreadable": 1, "doubtful": 1}}
