"""Answers that are cut off at the token limit, which nothing learns from."""

import pytest
from world import Telling, small_config, write_prompts

from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.run.stop import NothingToTrainOn, StopSignal
from lpfloop.stores.lake import RunReader, run_folder

SMALL = ("prompts.per_iteration=6", "recipe.n=4", "iterations=1", "seed=1")


@pytest.mark.parametrize("limit", [1, 500])
def test_warns_if_many_answers_are_cut(tmp_path, limit):
    config = small_config(write_prompts(tmp_path), *SMALL, f"policy.sampling.max_tokens={limit}")
    told = Telling()
    cut = limit == 1
    try:
        run_loop(Job(config=config, lake=tmp_path, name="a"), told, StopSignal())
    except NothingToTrainOn:
        assert cut
    reader = RunReader(run_folder(tmp_path, "a"))
    reasons = set(reader.scan("candidates", columns={"finish_reason"}).collect()["finish_reason"])
    reader.close()
    assert ("length" in reasons) == cut
    assert any(f"cut off at max_tokens ({limit})" in note for note in told.notes) == cut
