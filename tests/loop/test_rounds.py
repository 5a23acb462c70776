"""Several rounds of refinement: who is refined again, from what, and until when."""

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from crashing import (
    KILLED,
    RUN,
    Attempt,
    loop,
    quick_folder,
    small_config,
    stand_ins,
    whole,
    write_prompts,
)

from lpfloop.configs.schema import ConfigError, RunConfig
from lpfloop.loop.daemon.planning import planned
from lpfloop.loop.data.judged_candidates import verdicts
from lpfloop.loop.data.prompts import load_prompts
from lpfloop.loop.data.stage_names import in_round, of_any_round
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.report.refinement_rounds import rounds_plot
from lpfloop.stores.lake import RunReader

LIMITS = ("iterations=1", "recipe.m=2", "prompts.per_iteration=12")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with quick_folder(tmp_path_factory.getbasetemp()) as made, stand_ins(made):
        yield made


@pytest.fixture(scope="module")
def run(folder: Path) -> Iterator[RunReader]:
    """A run of three rounds, a third of whose answers the critic passes."""
    loop(folder, config=config_of(folder, 3), name="three")
    reader = open_run(folder, "three")
    yield reader
    reader.close()


def config_of(lake: Path, rounds: int, *more: str) -> RunConfig:
    return small_config(write_prompts(lake, 24), *LIMITS, f"recipe.rounds={rounds}", *more)


def refinements(run: RunReader, stage: str) -> pl.DataFrame:
    parts = run.journal.parts(table="candidates", iteration=1)
    return run.scan_parts("candidates", [part for part in parts if part.stage == stage]).collect()


def passed(run: RunReader) -> set[str]:
    said = verdicts(run.scan("critiques").collect()).filter("success")
    return {*said["candidate_id"]}


def test_what_is_refined_again_is_a_refinement_that_the_critic_does_not_pass(run: RunReader):
    rounds = [refinements(run, in_round("refine", number)) for number in (1, 2, 3)]
    assert [made.height > 0 for made in rounds] == [True, True, True]
    for before, after in pairwise(rounds):
        parents = {*after["parent_id"]}
        assert parents <= {*before["candidate_id"]}
        assert not parents & passed(run)
        # One of each prompt, refined m times with a critique of its own.
        assert (
            after.group_by("prompt_id").agg(pl.col("parent_id").n_unique())["parent_id"].max() == 1
        )
        assert {*after.group_by("parent_id").len()["len"]} == {2}
        told = (
            run.scan("critiques")
            .collect()
            .filter(pl.col("critique_id").is_in(after["critique_id"].implode()))
        )
        assert {*told["candidate_id"]} == parents


def test_a_prompt_is_left_alone_as_soon_as_its_best_refinement_passes(run: RunReader):
    first, second = (refinements(run, in_round("refine", number)) for number in (1, 2))
    stopped = {*first["prompt_id"]} - {*second["prompt_id"]}
    assert stopped
    good = first.filter(pl.col("candidate_id").is_in([*passed(run)]))
    assert stopped <= {*good["prompt_id"]}


def test_pairs_are_made_of_all_rounds(run: RunReader):
    last = {*refinements(run, "refine:round-2")["candidate_id"]}
    last |= {*refinements(run, "refine:round-3")["candidate_id"]}
    pairs = run.scan("pairs").collect()
    assert last & ({*pairs["chosen_id"]} | {*pairs["rejected_id"]})


def test_one_round_is_the_run_that_it_was_and_more_rounds_share_its_rows(
    folder: Path, run: RunReader
):
    loop(folder, config=small_config(write_prompts(folder, 24), *LIMITS), name="plain")
    loop(folder, config=config_of(folder, 1), name="one")
    plain, one = (whole(folder, name) for name in ("plain", "one"))
    assert plain.digest == one.digest
    other = open_run(folder, "one")
    for stage in ("sample", "critique:sample", "refine", "critique:refine", "reward:refine"):
        assert other.journal.keys(1, stage) == run.journal.keys(1, stage)
    assert other.journal.keys(1, "pair") != run.journal.keys(1, "pair")
    other.close()


def test_a_round_with_nothing_to_refine_asks_nobody(folder: Path):
    content = ("critic.engine.script=critics_of_rounds:content", "recipe.train=rs")
    config = config_of(folder, 3, *content)
    loop(folder, config=config, name="content")
    run = open_run(folder, "content")
    stages = {s.stage: s for s in run.journal.stages() if s.iteration == 1}
    assert stages["refine:round-2"].planned == stages["refine:round-2"].done > 0
    assert stages["refine"].totals.get("calls", 0) > 0
    for stage in ("refine:round-2", "critique:refine:round-2", "refine:round-3"):
        assert stages[stage].totals.get("calls", 0) == 0
    run.close()


@pytest.mark.crash
@pytest.mark.parametrize("place", ["stage.end#6", "stage.end#8"])
def test_a_run_killed_between_its_rounds_ends_as_one_that_was_not(
    folder: Path, run: RunReader, tmp_path: Path, place: str
):
    work = partial(loop, config=config_of(folder, 3))
    assert Attempt(lake=tmp_path, work=work, points={place: "kill"}).start() == KILLED
    Attempt(lake=tmp_path, work=work).finish()
    resumed = whole(tmp_path, RUN)
    assert resumed.digest == whole(folder, "three").digest
    assert resumed.owed == []


def test_a_plan_counts_as_many_rounds_as_there_may_be(folder: Path):
    config = config_of(folder, 3)
    prompts = load_prompts(config.prompts, seed=config.seed)
    calls = {s.stage: s.calls for s in planned(config, prompts, folder / RUN).stages}
    for stage in ("refine", "refine:round-2", "refine:round-3"):
        assert calls[stage] == calls[f"critique:{stage}"] == 24


def test_rounds_without_refinements_are_refused(folder: Path):
    with pytest.raises(ConfigError, match="rounds is 2, and m is 0"):
        config_of(folder, 2, "recipe.m=0")


def test_the_report_counts_the_prompts_that_pass_after_each_round(run: RunReader):
    rows = rounds_plot([run]).rows.filter(iteration=1)
    assert rows["round"].to_list() == [0, 1, 2, 3]
    assert rows["prompts"].to_list() == [12] * 4
    assert rows["passed"].is_sorted()
    assert rows["refined"].to_list()[0] == 0
    assert rows["refined"].to_list()[1:] == [
        refinements(run, in_round("refine", number))["prompt_id"].n_unique() for number in (1, 2, 3)
    ]
    good = passed(run)
    drafts = refinements(run, "sample").filter(pl.col("candidate_id").is_in([*good]))
    assert rows["passed"][0] == drafts["prompt_id"].n_unique()


def test_a_stage_of_a_round_is_known_by_its_name():
    assert in_round("refine", 1) == "refine"
    assert of_any_round(f"critique:{in_round('refine', 12)}") == "critique:refine"
    assert of_any_round("critique:sample") == "critique:sample"
