"""Answers that are cut off at the token limit, which nothing learns from."""

from contextlib import suppress

import pytest
from world import Telling, small_config, write_prompts

from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.lake.derive.rebuild_pairs import DerivationRequest, rebuild_pairs
from lpfloop.loop.run.stop import NothingToTrainOn, StopSignal
from lpfloop.stores.derived import scan_derived
from lpfloop.stores.lake import RunReader, run_folder

SMALL = ("prompts.per_iteration=6", "recipe.n=4", "iterations=1", "seed=1")


def made(folder, *settings):
    """Run the loop once; return its notes, and its reader."""
    config = small_config(write_prompts(folder), *SMALL, *settings)
    told = Telling()
    with suppress(NothingToTrainOn):
        run_loop(Job(config=config, lake=folder, name="a"), told, StopSignal())
    return told.notes, RunReader(run_folder(folder, "a"))


@pytest.mark.parametrize(
    ("limit", "how", "warns"),
    [(1, "left_out", True), (1, "rejected", False), (500, "left_out", False)],
)
def test_warns_if_many_answers_are_cut(tmp_path, limit, how, warns):
    cut = f"pairs.cut_answers={how}"
    notes, reader = made(tmp_path, f"policy.sampling.max_tokens={limit}", cut)
    reasons = set(reader.scan("candidates", columns={"finish_reason"}).collect()["finish_reason"])
    reader.close()
    assert ("length" in reasons) == (limit == 1)
    assert any(f"cut off at max_tokens ({limit})" in note for note in notes) == warns


def test_rebuilt_pairs_reject_cut_answers(tmp_path):
    wordy = ("policy.engine.script=scripts:wordy_policy", "policy.sampling.max_tokens=5")
    _, reader = made(tmp_path, *wordy, "pairs.cut_answers=rejected", "training.min_pairs=1")
    pairs = reader.scan("pairs").collect().sort("pair_id")
    rebuild_pairs(reader, DerivationRequest(rule="success_vs_failure", name="again"))
    rebuilt = scan_derived(reader.folder, "again", "pairs").collect().sort("pair_id")
    reader.close()
    assert True in pairs["rejected_cut"].to_list()
    assert set(pairs["chosen_cut"]) == {None}
    assert rebuilt["pair_id"].to_list() == pairs["pair_id"].to_list()
