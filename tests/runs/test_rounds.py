"""Several rounds of refinement: which candidates, from which parents, and until when."""

from itertools import pairwise
from pathlib import Path

import polars as pl
from world import loop, quick_folder, small_config, stand_ins, write_prompts

from lpfloop.loop.data.judged_candidates import verdicts
from lpfloop.loop.data.stage_names import in_round
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.stores.lake import RunReader

LIMITS = ("iterations=1", "recipe.m=2", "prompts.per_iteration=12", "recipe.rounds=3")


def refinements(run: RunReader, stage: str) -> pl.DataFrame:
    parts = run.journal.parts(table="candidates", iteration=1)
    return run.scan_parts("candidates", [part for part in parts if part.stage == stage]).collect()


def test_refined_again_is_a_failed_refinement(tmp_path: Path):
    """The critic passes a third of the answers."""
    with quick_folder(tmp_path) as folder, stand_ins(folder):
        loop(folder, config=small_config(write_prompts(folder, 24), *LIMITS), name="three")
        run = open_run(folder, "three")
        require_rounds(run)
        run.close()


def require_rounds(run: RunReader) -> None:
    said = run.scan("critiques").collect()
    passed = {*verdicts(said).filter("success")["candidate_id"]}
    rounds = [refinements(run, in_round("refine", number)) for number in (1, 2, 3)]
    assert [made.height > 0 for made in rounds] == [True, True, True]
    for before, after in pairwise(rounds):
        parents = {*after["parent_id"]}
        assert parents <= {*before["candidate_id"]}
        assert not parents & passed
        # One candidate of each prompt, refined m times, each time with a different critique.
        of = after.group_by("prompt_id").agg(pl.col("parent_id").n_unique())
        assert of["parent_id"].max() == 1
        assert {*after.group_by("parent_id").len()["len"]} == {2}
        told = said.filter(pl.col("critique_id").is_in(after["critique_id"].implode()))
        assert {*told["candidate_id"]} == parents
