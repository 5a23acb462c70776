"""A model learns the grader's critiques with their scores, and is a grader afterwards."""

import json
from pathlib import Path

import polars as pl
import pytest
from crashing import Silent
from turns import turn

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import GradingConfig
from lpfloop.critics.grading.grader import Grader
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.data.critique_lessons import GRADED_CRITIQUE
from lpfloop.loop.lake.derive.derivation_request import DerivationRequest
from lpfloop.loop.lake.derive.rederive import rederive
from lpfloop.loop.lake.imports.import_files import Import, import_files
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.run.lines import engine_sampling
from lpfloop.loop.run.outcomes import NothingToTrainOn
from lpfloop.loop.run.stop import StopSignal
from lpfloop.loop.stages.complete import complete
from lpfloop.loop.stages.grade import Grading
from lpfloop.policies.engines.engine import Batch, Request
from lpfloop.stores.derived import DerivedError, scan_derived
from lpfloop.stores.lake import run_folder

SMALL = (
    "iterations=1",
    "policy.engine.kind=scripted",
    "policy.engine.script=scripts:conditioned_policy",
    "critic.kind=verifier",
    "recipe.n=2",
    "prompts.per_iteration=12",
    "prompts.evaluated=4",
    "prompts.deciding=4",
    "prompts.chunk=6",
    "prompts.parts={sft: 0, preference: 8, unlabeled: 4}",
    "assessment.kl=false",
    "assessment.reference=null",
    "training.min_pairs=4",
    "training.sft={learning_rate: 1.0e-4, epochs: 1, batch_size: 8, micro_batch_size: 8}",
)


def job(lake: Path, variant: str, *overrides: str) -> Job:
    config = load_config("tiny", variant, (*SMALL, *overrides), {})
    return Job(config=config, lake=lake, name=variant)


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


@pytest.mark.model
def test_every_critique_with_its_score_is_a_lesson(lake: Path):
    taught, grades = rows(lake, "ultracm", "demonstrations"), rows(lake, "ultracm", "grades")
    assert set(grades["aspect"]) == {"overall"}
    about = taught.join(grades, on="candidate_id", validate="1:1")
    assert about.height == grades.height == 16
    for said, rating in zip(about["completion"].to_list(), about["rating"], strict=True):
        assert said[0]["content"].endswith(f"Overall score: {rating:g}")
    assert (about["reward"] == about["rating"]).all()


@pytest.mark.model
def test_the_same_lessons_are_derived_of_the_stored_grades(lake: Path):
    run = open_run(lake, "ultracm")
    told = rederive(run, DerivationRequest(rule=GRADED_CRITIQUE)).derived
    run.close()
    again = scan_derived(run_folder(lake, "ultracm"), told.name, "demonstrations").collect()
    own = rows(lake, "ultracm", "demonstrations")
    assert again.sort("demonstration_id").equals(own.sort("demonstration_id"))


@pytest.mark.model
def test_as_a_grader_it_is_asked_in_the_form_that_it_learned_and_answers(lake: Path):
    """By `grading.model`, without guard: word for word what stands in its lessons."""
    (checkpoint,) = rows(lake, "ultracm", "checkpoints")["path"]
    learned = rows(lake, "ultracm", "demonstrations")["prompt"].to_list()
    judge = (
        f"grading.model={run_folder(lake, 'ultracm') / checkpoint}",
        "grading.engine={kind: transformers, script: null}",
        "grading.sampling.max_tokens=12",
        "guard=false",
    )
    # The same seed, prompts and models give the same completions.
    with turn(job(lake.parent / "other", "ultracm", *judge)) as it:
        done = complete(it, it.prompts("preference"), n=2)
        it.run.flow.settle()
        assert it.run.grader is not None
        grading = Grading(
            run=it.run, iteration=1, grader=it.run.grader, aspect="overall",
            candidates=lambda chunk: it.chunk(done, chunk),
        )  # fmt: skip
        drafts = [c for chunk in range(done.chunks) for c in it.chunk(done, chunk)]
        posed = [grading.pose((draft,), 0).question.messages for draft in drafts]
        asked = [[{"role": m.role, "content": m.content} for m in messages] for messages in posed]
        assert sorted(map(json.dumps, asked)) == sorted(map(json.dumps, learned))
        request = Request(request_id="a", messages=posed[0], seed=0)
        sampling = engine_sampling(it.run.config.grading.sampling)
        batch = Batch(key="b", requests=(request,), sampling=sampling)
        (result,) = it.run.engine(it.run.models.grader).generate([batch])
        assert result.completions[0].completion_tokens > 0


@pytest.mark.model
def test_both_kinds_of_grades_are_asked_for_and_the_rule_reads_its_own(tmp_path: Path):
    wanted = ("recipe.grades=both", "training.min_pairs=1000", "smoke.train=false")
    with pytest.raises(NothingToTrainOn, match="min_pairs"):
        run_loop(job(tmp_path, "ultrafeedback-dpo", *wanted), Silent(), StopSignal())
    grades = rows(tmp_path, "ultrafeedback-dpo", "grades")
    assert grades.group_by("candidate_id").len()["len"].unique().to_list() == [5]
    pairs = rows(tmp_path, "ultrafeedback-dpo", "pairs")
    assert set(pairs["rule"]) == {"mean-vs-random"}
    assert pairs["chosen_reward"].max() <= 5


# Published critiques


def published(path: Path, *completions: dict[str, object]) -> Path:
    row = {"source": "flan", "instruction": "Name a prime.", "completions": list(completions)}
    path.write_text(json.dumps(row) + "\n")
    return path


def completion(text: str, critique: str, score: object) -> dict[str, object]:
    return {
        "model": "m", "response": text, "critique": critique, "overall_score": score,
        "annotations": {}, "principle": "honesty", "custom_system_prompt": "Say what you doubt.",
    }  # fmt: skip


def test_published_critiques_are_lessons_in_the_form_that_graders_are_asked_for(tmp_path: Path):
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
    told = rederive(run, DerivationRequest(rule=GRADED_CRITIQUE)).derived
    prompt = run.scan("prompts").collect().to_dicts()[0]
    with pytest.raises(DerivedError, match="leave out --derived, --top-k"):
        rederive(run, DerivationRequest(rule=GRADED_CRITIQUE, top_k=1))
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
