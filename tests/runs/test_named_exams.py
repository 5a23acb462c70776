"""Several named sets of held-out prompts: each is a separate eval set; all of them judge a run."""

import json
from functools import partial
from pathlib import Path

import polars as pl
import pytest
from world import KILLED, RUN, SMALL, Attempt, loop, loop_and_look, seen, stand_ins, whole

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import PromptsConfig, RunConfig
from lpfloop.loop.lake.query.best_model import best_model
from lpfloop.loop.lake.query.model_figures import run_results
from lpfloop.loop.lake.query.model_names import checkpoints
from lpfloop.loop.lake.query.run_status import status
from lpfloop.loop.lake.query.run_verdicts import run_verdict
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.stores.keys import Json

SUMS = [
    {"question": f"What is {n} + {n}?", "answer": f"It is {2 * n}.\n#### {2 * n}"}
    for n in range(1, 7)
]
PETS = [{"prompt": f"Write the name of pet {n} in capitals.", "source": "pets"} for n in range(4)]
TRAINED = [{"question": f"What is {n} times 3?", "answer": f"#### {3 * n}"} for n in range(20, 40)]


def sets_in(folder: Path) -> RunConfig:
    def write(name: str, rows: list[dict[str, Json]]) -> Path:
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    sets = f"{{sums: {write('sums', SUMS)}, pets: {write('pets', PETS)}}}"
    own = (f"prompts.source={write('train', TRAINED)}", f"prompts.held_out={sets}")
    few = ("prompts.max_test=4", "prompts.dev_share=0", "iterations=1")
    none = ("assessment.oracle=null", "assessment.reference=null", "assessment.kl=false")
    return load_config("tiny", "rlrf", (*SMALL, *own, *few, *none), {})


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with a run on both sets."""
    folder = tmp_path_factory.mktemp("eval_sets")
    with stand_ins(folder):
        loop(folder, config=sets_in(folder))
    return folder


def test_each_set_has_its_name(lake: Path) -> None:
    run = open_run(lake, RUN)
    numbers = run.scan("evaluations").collect()
    scores = run.scan("scores").filter(pl.col("benchmark") != "drafts").collect()
    prompts = run.scan("prompts").collect()
    told = status(run)["iterations"]
    run.close()
    measured = set(numbers["benchmark"]) - {"drafts", "style"}
    assert measured == {"held-out:sums", "held-out:pets"}
    eval_sets = dict(prompts.select("prompt_id", "eval_set").iter_rows())
    assert {
        (b, f"held-out:{eval_sets[p]}")
        for b, p in scores.select("benchmark", "prompt_id").iter_rows()
    } == {(name, name) for name in measured}
    assert set(prompts.filter(pl.col("split") == "train")["eval_set"]) == {None}
    for turn in told:
        assert turn["metrics"] == {}
        assert {name: of["mean_length"]["n"] for name, of in turn["eval_sets"].items()} == {
            "sums": 4,
            "pets": 4,
        }
        assert "math_accuracy" in turn["eval_sets"]["sums"]


def test_results_of_all_and_each(lake: Path) -> None:
    run = open_run(lake, RUN)
    every, alone = run_results(run), run_results(run, split="sums")
    told = run_verdict(run, checkpoints(run))
    best = best_model(run, checkpoints(run))
    run.close()
    length = {row.name: row.n for row in every.rows if row.figure == "mean_length"}
    assert length == {"": 8, "pets": 4, "sums": 4, "math": 4, "general": 4}
    assert {row.scope for row in every.rows} == {"all", "eval_set", "task"}
    assert (alone.split, {row.n for row in alone.rows if row.figure == "mean_length"}) == (
        "held-out:sums",
        {4},
    )
    assert best.values[0].n == 4, "the sums are verified, wherever they lie"
    by_set = {row.name for row in told.iterations[0].rows if row.scope == "eval_set"}
    assert by_set == {"pets", "sums"}


def test_refused_set_names() -> None:
    for name in ("With space", "", "a/b", "x-0123abcd"):
        with pytest.raises(ValueError, match="held_out"):
            PromptsConfig.model_validate({"held_out": {name: "a.jsonl"}})


def test_killed_between_two_sets(lake: Path, tmp_path: Path) -> None:
    run = open_run(lake, RUN)
    order = [state.stage for state in run.journal.stages() if state.iteration == 0]
    run.close()
    points = {f"stage.end#{order.index('measure:held-out:pets') + 1}": "kill"}
    work = partial(loop_and_look, config=sets_in(lake))
    assert Attempt(lake=tmp_path, work=work, points=points).start() == KILLED
    run = open_run(tmp_path, RUN)
    measured = {state.stage for state in run.journal.stages() if "measure" in state.stage}
    run.close()
    assert measured == {"measure:held-out:pets"}
    Attempt(lake=tmp_path, work=work).finish()
    assert seen(tmp_path) == whole(lake)
