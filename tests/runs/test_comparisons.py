"""A run compares every two answers, and drops circles and surplus wins of longer answers."""

import json
from collections import Counter
from pathlib import Path

import pytest
from judges import judged_config, words
from world import handle_rows, turn

from lpfloop.configs.recipes import DPO
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.recipes.annotated_pairs import draft_answers
from lpfloop.loop.run.handles import Rows
from lpfloop.loop.run.iteration import Iteration
from lpfloop.loop.stages.compare import annotate
from lpfloop.loop.stages.prefer import demonstrate_preferred, prefer
from lpfloop.loop.stages.sample import sample
from lpfloop.policies.trainers.length_bias import bucket_of
from lpfloop.stores.records import Candidate, FilterCount, Pair

EVERY = (
    "policy.engine.script=scripts:wordy_policy",
    "annotation.comparisons=all",
    "annotation.flip_probability=0",
    "recipe.n=4",
    "prompts.max_test=2",
    "prompts.max_dev=2",
)
SIFTED = (*EVERY, "annotation.drop_cycles=true")
WIDTH = 2
BALANCED = (*SIFTED, "pairs.balance_length=true", f"pairs.bucket_width={WIDTH}")


def job(folder: Path, script: str, *overrides: str, name: str = "a") -> Job:
    return Job(config=judged_config(folder, script, *overrides), lake=folder, name=name)


def filter_counts(it: Iteration, handle: Rows[Pair]) -> list[FilterCount]:
    it.run.store.flush()
    (stage,) = handle.stages
    return [
        row
        for key in stage.keys(it.run.store.journal)
        for row in it.run.store.rows(FilterCount, key)
    ]


def lengths(drafts: list[Candidate]) -> dict[str, int]:
    return {draft.candidate_id: words(draft.text) for draft in drafts}


CUT = (*EVERY, "policy.sampling.max_tokens=6")


@pytest.mark.parametrize("kept", ["left_out", "compared"])
def test_cut_answers_in_pairs(tmp_path, kept):
    """Pairs mark cut answers, and DPO and a reward model learn the same rows."""
    config = (*CUT, f"annotation.cut_answers={kept}", "annotation.top_p=0.9")
    with turn(job(tmp_path, "wordy", *config)) as it:
        drafts = draft_answers(it, DPO(n=4))
        pairs = handle_rows(it, prefer(it, drafts, annotate(it, drafts)))
        ends = {draft.candidate_id: draft.finish_reason for draft in handle_rows(it, drafts)}
        assert {json.loads(d.sampling)["top_p"] for d in handle_rows(it, drafts)} == {0.9}
    assert {"stop", "length"} == set(ends.values())
    for pair in pairs:
        assert pair.chosen_cut == (True if ends[pair.chosen_id] == "length" else None)
        assert pair.rejected_cut == (True if ends[pair.rejected_id] == "length" else None)
    # The longer answer wins, and the longest is a cut one.
    cut = {ends[pair.chosen_id] == "length" for pair in pairs}
    assert cut == ({True, False} if kept == "compared" else {False})


def test_cycles_give_no_pair(tmp_path):
    with turn(job(tmp_path, "circling", *SIFTED)) as it:
        drafts = sample(it, it.prompts(), n=4)
        preferences = annotate(it, drafts)
        said = handle_rows(it, preferences)
        handle = prefer(it, drafts, preferences)
        pairs, told = handle_rows(it, handle), filter_counts(it, handle)
        shown = demonstrate_preferred(it, drafts, preferences)
        learned = handle_rows(it, shown)
    count = Counter[str]()
    for counted in told:
        assert (counted.filter, counted.items) == ("consistency", "comparisons")
        count[counted.outcome] += counted.count
    assert count.total() == len(said)
    assert count["kept"] == len(pairs)
    assert count["circular"] > 5
    assert count["unread"] > 5
    assert {row.candidate_id for row in learned} == {pair.chosen_id for pair in pairs}
    by_prompt = Counter(row.prompt_id for row in said)
    assert set(by_prompt.values()) == {1, 3, 6}, "all two of 2, 3 or 4 different answers"
    for prompt_id in {pair.prompt_id for pair in pairs}:
        left = {(p.chosen_id, p.rejected_id) for p in pairs if p.prompt_id == prompt_id}
        while left:
            best = {a for a, _ in left} - {b for _, b in left}
            assert best, "a circle is left"
            left = {(a, b) for a, b in left if a not in best}


def test_balanced_lengths(tmp_path):
    with turn(job(tmp_path, "wordy", *BALANCED)) as it:
        drafts = sample(it, it.prompts(), n=4)
        preferences = annotate(it, drafts)
        handle = prefer(it, drafts, preferences)
        pairs, told = handle_rows(it, handle), filter_counts(it, handle)
        long = lengths(handle_rows(it, drafts))
    assert {pair.rule for pair in pairs} == {"preferred/balanced"}
    assert len({pair.pair_id for pair in pairs}) == len(pairs) > 20
    sides = Counter[tuple[str, bool]]()
    for pair in pairs:
        longer = long[pair.chosen_id] - long[pair.rejected_id]
        sides[str(bucket_of(longer, WIDTH)), longer > 0] += 1
    buckets = {bucket for bucket, _ in sides}
    assert all(sides[bucket, True] == sides[bucket, False] for bucket in buckets)
    dropped = Counter[str]()
    for counted in told:
        if counted.outcome != "kept":
            dropped[counted.outcome] += counted.count
    assert dropped["longer_wins"] > dropped["longer_loses"]
    assert sum(r.count for r in told if r.outcome == "kept") == len(pairs)
    assert {r.filter.removeprefix("balance_length/") for r in told} >= buckets
