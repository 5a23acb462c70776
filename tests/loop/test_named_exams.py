"""Several named sets of held-out prompts: each is an exam of its own, a run is judged by all."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import polars as pl
import pytest
from crashing import (
    KILLED,
    RUN,
    SMALL,
    Attempt,
    loop,
    loop_and_look,
    seen,
    stand_ins,
)
from judges import judged_config
from typer.testing import CliRunner

import lpfloop
from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError, PromptsConfig, RunConfig
from lpfloop.loop.cli.app import app
from lpfloop.loop.daemon.exams import Exams
from lpfloop.loop.daemon.rehearsal import rehearse
from lpfloop.loop.data.files import InputError
from lpfloop.loop.data.prompts import load_prompts
from lpfloop.loop.lake.query.best_model import best_model
from lpfloop.loop.lake.query.model_figures import run_results
from lpfloop.loop.lake.query.model_names import checkpoints
from lpfloop.loop.lake.query.run_verdicts import run_verdict
from lpfloop.loop.lake.query.runs import open_run, status
from lpfloop.loop.lake.search.duplicates import _of_prompts, _prompt_texts
from lpfloop.stores.keys import Json

Write = Callable[..., Path]
SUMS = [
    {"question": f"What is {n} + {n}?", "answer": f"It is {2 * n}.\n#### {2 * n}"}
    for n in range(1, 7)
]
PETS = [{"prompt": f"Write the name of pet {n} in capitals.", "source": "pets"} for n in range(4)]
TRAINED = [{"question": f"What is {n} times 3?", "answer": f"#### {3 * n}"} for n in range(20, 40)]


@pytest.fixture
def file(tmp_path: Path) -> Write:
    def write(name: str, rows: list[dict[str, Json]]) -> Path:
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write


@pytest.fixture
def config(file: Write) -> Callable[..., RunConfig]:
    def made(*overrides: str) -> RunConfig:
        sets = f"{{sums: {file('sums', SUMS)}, pets: {file('pets', PETS)}}}"
        own = (f"prompts.source={file('train', TRAINED)}", f"prompts.held_out={sets}")
        few = ("prompts.evaluated=4", "prompts.dev_share=0", "iterations=1")
        none = ("assessment.oracle=null", "assessment.reference=null", "assessment.kl=false")
        return load_config("tiny", "rlrf", (*SMALL, *own, *few, *none, *overrides), {})

    return made


def turned(lake: Path, config: RunConfig) -> None:
    with stand_ins(lake):
        loop(lake, config=config)


def test_each_set_is_evaluated_under_a_name_of_its_own(
    tmp_path: Path, config: Callable[..., RunConfig]
) -> None:
    turned(tmp_path, config())
    run = open_run(tmp_path, RUN)
    numbers = run.scan("evaluations").collect()
    scores = run.scan("scores").filter(pl.col("benchmark") != "drafts").collect()
    prompts = run.scan("prompts").collect()
    told = status(run)["iterations"]
    run.close()
    measured = set(numbers["benchmark"]) - {"drafts", "style"}
    assert measured == {"held-out:sums", "held-out:pets"}
    exams = dict(prompts.select("prompt_id", "exam").iter_rows())
    assert {
        (b, f"held-out:{exams[p]}") for b, p in scores.select("benchmark", "prompt_id").iter_rows()
    } == {(name, name) for name in measured}
    assert set(prompts.filter(pl.col("split") == "train")["exam"]) == {None}
    for turn in told:
        assert turn["metrics"] == {}
        assert {name: of["mean_length"]["n"] for name, of in turn["exams"].items()} == {
            "sums": 4,
            "pets": 4,
        }
        assert "math_accuracy" in turn["exams"]["sums"]


def test_results_tell_all_sets_together_and_each(
    tmp_path: Path, config: Callable[..., RunConfig]
) -> None:
    turned(tmp_path, config())
    run = open_run(tmp_path, RUN)
    every, alone = run_results(run), run_results(run, split="sums")
    told = run_verdict(run, checkpoints(run))
    best = best_model(run, checkpoints(run))
    run.close()
    length = {row.name: row.n for row in every.rows if row.figure == "mean_length"}
    assert length == {"": 8, "pets": 4, "sums": 4, "math": 4, "general": 4}
    assert {row.scope for row in every.rows} == {"all", "exam", "task"}
    assert (alone.split, {row.n for row in alone.rows if row.figure == "mean_length"}) == (
        "held-out:sums",
        {4},
    )
    assert best.standings[0].n == 4, "the sums are verified, wherever they lie"
    by_set = {row.name for row in told.iterations[0].rows if row.scope == "exam"}
    assert by_set == {"pets", "sums"}
    assert "sums: held-out, against M_0 (initial)" in str(told)


def test_commands_name_the_sets(tmp_path: Path, config: Callable[..., RunConfig]) -> None:
    turned(tmp_path, config())
    told = CliRunner().invoke(app, ["status", RUN, "--lake", str(tmp_path), "--split", "pets"])
    assert "Results on held-out:pets" in told.stdout, told.output
    wrong = CliRunner().invoke(app, ["status", RUN, "--lake", str(tmp_path), "--split", "fish"])
    assert wrong.exit_code == 2
    assert "it has held-out, pets, sums" in " ".join(wrong.stderr.split())
    table = ("--format", "table")
    beside = CliRunner().invoke(app, ["compare", RUN, "--lake", str(tmp_path), *table])
    assert "exam pets" in beside.stdout
    assert "exam sums" in beside.stdout
    listed = CliRunner().invoke(app, ["eval", "run", RUN, "--lake", str(tmp_path), "--json"])
    rows = json.loads(listed.stdout)
    assert {row["benchmark"] for row in rows if row["iteration"] == 1} == {
        "held-out:pets",
        "held-out:sums",
    }
    every = lpfloop.open(RUN, lake=tmp_path).results(by="source")
    assert set(every.filter(pl.col("scope") == "source")["name"]) == {"pets", "sums.jsonl"}


def test_a_run_that_is_killed_between_two_sets_goes_on_there(
    tmp_path: Path, config: Callable[..., RunConfig]
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for lake in (whole, killed):
        lake.mkdir()
    wanted = config()
    Attempt(lake=whole, work=partial(loop_and_look, config=wanted)).finish()
    run = open_run(whole, RUN)
    order = [state.stage for state in run.journal.stages() if state.iteration == 0]
    run.close()
    place = order.index("measure:held-out:pets") + 1
    work = partial(loop_and_look, config=wanted)
    assert Attempt(lake=killed, work=work, points={f"stage.end#{place}": "kill"}).start() == KILLED
    run = open_run(killed, RUN)
    measured = {state.stage for state in run.journal.stages() if "measure" in state.stage}
    run.close()
    assert measured == {"measure:held-out:pets"}
    Attempt(lake=killed, work=work).finish()
    assert seen(killed) == seen(whole)


def test_a_single_file_is_no_named_set(tmp_path: Path, config: Callable[..., RunConfig]) -> None:
    wanted = config(f"prompts.held_out={tmp_path / 'sums.jsonl'}")
    prompts = load_prompts(wanted.prompts, seed=0)
    assert {p.exam for p in prompts} == {None}
    assert list(Exams.of(wanted, prompts).sets) == ["held-out"]


def test_a_rehearsal_asks_each_set_in_its_size(config: Callable[..., RunConfig]) -> None:
    wanted = config("prompts.evaluated=null")
    found = rehearse(wanted, load_prompts(wanted.prompts, seed=0))
    asked = {
        stage.notes.stage: stage.group.total
        for stage in found.stages
        if stage.notes.stage.startswith("evaluate:")
    }
    assert asked == {"evaluate:held-out:pets": 4, "evaluate:held-out:sums": 6}


def test_overlaps_are_told_by_set(file: Write, config: Callable[..., RunConfig]) -> None:
    wanted = config()
    text = " ".join(f"word{n}" for n in range(30))
    file("train", [*TRAINED, {"prompt": f"Say it: {text}"}])
    file("pets", [*PETS, {"prompt": f"Repeat this: {text}"}])
    found = _of_prompts(_prompt_texts(load_prompts(wanted.prompts, seed=0)))
    assert found["exams"] == {
        "pets": {"held_out": 5, "overlapping": 1},
        "sums": {"held_out": 6, "overlapping": 0},
    }


@pytest.mark.parametrize(
    ("pets", "said"),
    [
        ([SUMS[0]], "the held-out prompt 'What is 1 + 1?' is also in"),
        ([{"prompt": "Other", "prompt_id": "one"}], "the id 'one' is that of another prompt in"),
    ],
)
def test_sets_share_neither_a_prompt_nor_an_id(
    file: Write, config: Callable[..., RunConfig], pets: list[dict[str, Json]], said: str
) -> None:
    wanted = config()
    file("sums", [*SUMS, {"prompt": "Mine", "prompt_id": "one"}])
    file("pets", pets)
    with pytest.raises(InputError, match=said.replace("?", r"\?").replace("+", r"\+")):
        load_prompts(wanted.prompts, seed=0)


def test_a_row_that_is_held_out_must_be_in_a_set(
    file: Write, config: Callable[..., RunConfig]
) -> None:
    wanted = config()
    file("train", [*TRAINED, {"prompt": "Kept apart", "split": "held-out"}])
    with pytest.raises(InputError, match="'Kept apart' is marked as held out, and"):
        load_prompts(wanted.prompts, seed=0)


@pytest.mark.parametrize("name", ["With space", "", "a/b", "x-0123abcd"])
def test_a_name_that_could_be_misread_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="held_out"):
        PromptsConfig.model_validate({"held_out": {name: "a.jsonl"}})


def test_a_reference_may_be_of_one_set(
    tmp_path: Path, file: Write, config: Callable[..., RunConfig]
) -> None:
    said = [{"instruction": row["prompt"], "output": "PET", "generator": "g"} for row in PETS]
    sets = config().prompts.held_out
    own = (f"prompts.source={tmp_path / 'train.jsonl'}", f"prompts.held_out={json.dumps(sets)}")

    def judged(reference: str) -> RunConfig:
        more = ("iterations=0", "prompts.dev_share=0", f"assessment.reference={reference}")
        return judged_config(tmp_path, "greater", *own, *more)

    turned(tmp_path, judged(f"{{pets: {file('said', said)}}}"))
    run = open_run(tmp_path, RUN)
    won = run.scan("scores").filter(pl.col("metric") == "win_rate").collect()
    outputs = run.scan("candidates").filter(pl.col("kind") == "external").collect()
    run.close()
    assert set(won["benchmark"]) == {"held-out:pets"}
    assert set(outputs["text"]) == {"PET"}
    with pytest.raises(ConfigError, match="is about the set 'fish', but") as refused:
        turned(tmp_path, judged("{fish: initial}"))
    assert "prompts.held_out names pets, sums" in str(refused.value)


def test_a_checkpoint_is_measured_on_several_files_by_their_names(
    tmp_path: Path, file: Write, config: Callable[..., RunConfig]
) -> None:
    turned(tmp_path, config())
    one, two = file("one", [{"prompt": "One?"}]), file("two", [{"prompt": "Two?"}])
    beside = ["eval", "run", RUN, "--lake", str(tmp_path), "--prompts"]
    asked = [*beside, f"first={one}", "--prompts", str(two), "--format", "csv"]
    found = CliRunner().invoke(app, asked)
    assert found.exit_code == 0, found.output
    assert {name.rpartition("-")[0] for name in _benchmarks(found.stdout)} == {"first", "two"}
    again = lpfloop.evaluate(RUN, lake=tmp_path, iteration="M_0", prompts={"mine": one})
    assert {name.rpartition("-")[0] for name in again["benchmark"]} == {"mine"}
    twice = CliRunner().invoke(app, [*beside, str(one), "--prompts", f"one={two}"])
    assert twice.exit_code == 2
    assert "name it: NAME=" in twice.stderr


def _benchmarks(table: str) -> set[str]:
    return set(pl.read_csv(table.encode())["benchmark"])
