"""Every two answers compared, circles and surplus long winners left out, as a run does it."""

import json
from collections import Counter
from itertools import combinations
from pathlib import Path

import polars as pl
import pytest
from judges import judged_config, words
from turns import rows, turn

from lpfloop.configs.recipes import DPO
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.data.training_rows import in_use
from lpfloop.loop.recipes.annotated_pairs import annotated, drafted
from lpfloop.loop.run.handles import Rows
from lpfloop.loop.run.iteration import Iteration
from lpfloop.loop.run.outcomes import NothingToTrainOn
from lpfloop.loop.run.stop import Stopped
from lpfloop.loop.stages.compare import annotate
from lpfloop.loop.stages.mix import mixed
from lpfloop.loop.stages.prefer import demonstrate_preferred, prefer
from lpfloop.loop.stages.sample import sample
from lpfloop.loop.stages.train import train
from lpfloop.policies.engines.token_count import token_count
from lpfloop.policies.trainers.length_bias import bucket_of
from lpfloop.stores.records import Candidate, Pair, Receipt

EVERY = (
    "policy.engine.script=scripts:wordy_policy",
    "annotation.comparisons=all",
    "annotation.flip_probability=0",
    "recipe.n=4",
)
SIFTED = (*EVERY, "annotation.drop_cycles=true")
WIDTH = 2
BALANCED = (*SIFTED, "pairs.balance_length=true", f"pairs.bucket_width={WIDTH}")


def job(folder: Path, script: str, *overrides: str, name: str = "a") -> Job:
    return Job(config=judged_config(folder, script, *overrides), lake=folder, name=name)


def receipts(it: Iteration, handle: Rows[Pair]) -> list[Receipt]:
    it.run.store.flush()
    (stage,) = handle.stages
    return [
        row for key in stage.keys(it.run.store.journal) for row in it.run.store.rows(Receipt, key)
    ]


def lengths(drafts: list[Candidate]) -> dict[str, int]:
    return {draft.candidate_id: words(draft.text) for draft in drafts}


def test_every_two_different_answers_of_a_prompt_are_compared(tmp_path):
    with turn(job(tmp_path, "wordy", *EVERY)) as it:
        drafts = sample(it, it.prompts(), n=4)
        said = rows(it, annotate(it, drafts))
        long = lengths(rows(it, drafts))
        by_prompt: dict[str, set[int]] = {}
        for draft in rows(it, drafts):
            by_prompt.setdefault(draft.prompt_id, set()).add(words(draft.text))
    for prompt_id, own in by_prompt.items():
        compared = [
            frozenset((long[row.first_id], long[row.second_id]))
            for row in said
            if row.prompt_id == prompt_id and row.preferred != "tie"
        ]
        assert sorted(map(sorted, compared)) == sorted(map(list, combinations(sorted(own), 2)))


CUT = (*EVERY, "policy.sampling.max_tokens=6")


@pytest.mark.parametrize("kept", ["left_out", "compared"])
def test_answers_that_were_cut_are_in_pairs_where_the_run_says_so(tmp_path, kept):
    """And the pairs say which those are: DPO and a reward model learn the same rows."""
    config = (*CUT, f"annotation.cut_answers={kept}", "annotation.top_p=0.9")
    with turn(job(tmp_path, "wordy", *config)) as it:
        drafts = drafted(it, DPO(n=4))
        pairs = rows(it, prefer(it, drafts, annotate(it, drafts)))
        ends = {draft.candidate_id: draft.finish_reason for draft in rows(it, drafts)}
        assert {json.loads(d.sampling)["top_p"] for d in rows(it, drafts)} == {0.9}
    assert {"stop", "length"} == set(ends.values())
    for pair in pairs:
        assert pair.chosen_cut == (True if ends[pair.chosen_id] == "length" else None)
        assert pair.rejected_cut == (True if ends[pair.rejected_id] == "length" else None)
    # The longer answer wins, and the longest is one that was cut.
    cut = {ends[pair.chosen_id] == "length" for pair in pairs}
    assert cut == ({True, False} if kept == "compared" else {False})


def test_what_goes_in_circles_makes_no_pair_and_stays_in_the_lake(tmp_path):
    with turn(job(tmp_path, "circling", *SIFTED)) as it:
        drafts = sample(it, it.prompts(), n=4)
        preferences = annotate(it, drafts)
        said = rows(it, preferences)
        handle = prefer(it, drafts, preferences)
        pairs, told = rows(it, handle), receipts(it, handle)
        shown = demonstrate_preferred(it, drafts, preferences)
        learned = rows(it, shown)
    count = Counter[str]()
    for receipt in told:
        assert (receipt.filter, receipt.items) == ("consistency", "comparisons")
        count[receipt.outcome] += receipt.count
    assert count.total() == len(said)
    assert count["kept"] == len(pairs)
    assert count["circular"] > 5
    assert count["unread"] > 5
    assert {row.candidate_id for row in learned} == {pair.chosen_id for pair in pairs}
    for prompt_id in {pair.prompt_id for pair in pairs}:
        left = {(p.chosen_id, p.rejected_id) for p in pairs if p.prompt_id == prompt_id}
        while left:
            best = {a for a, _ in left} - {b for _, b in left}
            assert best, "a circle is left"
            left = {(a, b) for a, b in left if a not in best}


def test_a_bucket_keeps_as_many_pairs_whose_longer_answer_wins_as_loses(tmp_path):
    with turn(job(tmp_path, "wordy", *BALANCED)) as it:
        drafts = sample(it, it.prompts(), n=4)
        preferences = annotate(it, drafts)
        handle = prefer(it, drafts, preferences)
        pairs, told = rows(it, handle), receipts(it, handle)
        long = lengths(rows(it, drafts))
    assert {pair.rule for pair in pairs} == {"preferred/balanced"}
    assert len({pair.pair_id for pair in pairs}) == len(pairs) > 20
    sides = Counter[tuple[str, bool]]()
    for pair in pairs:
        longer = long[pair.chosen_id] - long[pair.rejected_id]
        sides[str(bucket_of(longer, WIDTH)), longer > 0] += 1
    buckets = {bucket for bucket, _ in sides}
    assert all(sides[bucket, True] == sides[bucket, False] for bucket in buckets)
    dropped = Counter[str]()
    for receipt in told:
        if receipt.outcome != "kept":
            dropped[receipt.outcome] += receipt.count
    assert dropped["longer_wins"] > dropped["longer_loses"]
    assert sum(r.count for r in told if r.outcome == "kept") == len(pairs)
    assert {r.filter.removeprefix("balance_length/") for r in told} >= buckets


def test_a_balancing_that_was_stopped_goes_on_to_the_same_rows(tmp_path):
    small = ("prompts.per_iteration=24", "prompts.chunk=3")
    with turn(job(tmp_path, "wordy", *BALANCED, *small)) as it:
        handle = annotated(it, it.run.config.recipe)
        at_once = rows(it, handle), receipts(it, handle)
    wanted = job(tmp_path, "wordy", *BALANCED, *small, name="b")
    with pytest.raises(Stopped), turn(wanted, stop_after=11) as it:
        annotated(it, it.run.config.recipe)
    with turn(wanted) as it:
        handle = annotated(it, it.run.config.recipe)
        assert (rows(it, handle), receipts(it, handle)) == at_once


def test_too_few_balanced_pairs_are_refused_with_what_was_left_out(tmp_path):
    few = ("prompts.per_iteration=12", "training.min_pairs=100000")
    with turn(job(tmp_path, "wordy", *BALANCED, *few)) as it:
        pairs = annotated(it, it.run.config.recipe)
        with pytest.raises(NothingToTrainOn, match=r"a filter did: .*\d+ kept"):
            train(it, pairs)


OTHERS = [("one two three", "one"), ("one two three four", "one two"), ("one", "one two three")]
CHINESE = [("好" * 480, "好"), ("好" * 3, "好" * 2), ("好", "好" * 2)]
"""By white space, both answers of each are one word."""


@pytest.mark.parametrize(("texts", "kept"), [(OTHERS, [-4, 4]), (CHINESE, [-3, 3])])
def test_other_peoples_pairs_are_balanced_by_the_policys_own_tokens(tmp_path, texts, kept):
    file = tmp_path / "others.jsonl"
    asked = [
        {"prompt": f"Question {n}?", "chosen": f"{won} {n}", "rejected": f"{lost} {n}"}
        for n, (won, lost) in enumerate(texts)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in asked))
    with turn(job(tmp_path, "wordy", *BALANCED, "prompts.per_iteration=12")) as it:
        pairs = annotated(it, it.run.config.recipe)
        both = mixed(it, pairs, [str(file)])
        assert both.label == "balance:prefer+balance:mixed"
        others = [pair for pair in rows(it, both) if pair not in rows(it, pairs)]
    count = token_count(it.run.models.initial.location)
    longer = [count(p.chosen[0].content) - count(p.rejected[0].content) for p in others]
    assert sorted(longer) == kept


def test_answers_of_other_models_are_measured_by_the_policys_own_tokens(tmp_path):
    """What their engines count are tokens of their own: here they are words."""
    pool = tmp_path / "models.yaml"
    pool.write_text(
        "models:\n- {name: own, model: policy}\n"
        '- {name: other, model: tiny, engine: {kind: scripted, script: "judges:chinese_answer"}}\n'
    )
    wide = ("pairs.bucket_width=100", "recipe.n=2", f"completion.pool={pool}")
    with turn(job(tmp_path, "greater", *BALANCED, *wide)) as it:
        told = receipts(it, annotated(it, it.run.config.recipe))
        assert token_count(it.run.models.initial.location)("好" * 300) == 900
    # 300 characters are one word to the engine that wrote them, and 900 tokens to the policy.
    assert {receipt.filter for receipt in told} == {"balance_length/801-900"}


def test_without_a_tokenizer_at_hand_a_chinese_character_is_about_a_token():
    count = token_count("https://models.example/v1")
    assert count("好" * 480) == 480
    assert count("word") == 2


def test_nothing_is_balanced_and_no_stage_is_planned_where_it_is_off(tmp_path):
    with turn(job(tmp_path, "wordy", *EVERY)) as it:
        drafts = sample(it, it.prompts(), n=4)
        handle = prefer(it, drafts, annotate(it, drafts))
        stages = [state.stage for state in it.run.store.journal.stages()]
    assert handle.label == stages[-1] == "prefer"


def test_of_a_balanced_rule_only_what_was_kept_is_in_use():
    found = pl.LazyFrame(
        {
            "iteration": [1, 1, 1, 2],
            "rule": ["preferred", "preferred/balanced", "top_reward", "preferred"],
        }
    )
    assert in_use(found).collect().rows() == [
        (1, "preferred/balanced"), (1, "top_reward"), (2, "preferred")
    ]  # fmt: skip
