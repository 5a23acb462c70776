"""Pairs and demonstrations obey the rules of Section 3.3, whatever is thrown at them."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpfloop.loop.pairing import Judged, Outcome, demonstrate, pair
from lpfloop.stores.records import (
    AspectRating,
    Candidate,
    Critique,
    Message,
    Prompt,
    Reward,
)

PROMPT = Prompt(
    prompt_id="p",
    task="math",
    split="train",
    messages=(Message(role="user", content="?"),),
    reference=None,
    checks=(),
    source="test",
)
RULES = ["success_vs_failure", "top_reward"]


def judged(name, ratings, reward, text=None, finish="stop"):
    """Make a candidate; `ratings` None: no critique; empty: an unscored one."""
    candidate = Candidate(
        candidate_id=f"cand-{name}",
        prompt_id="p",
        iteration=1,
        kind="sample",
        parent_id=None,
        critique_id=None,
        policy="M_0",
        model="tiny",
        principle=None,
        text=f"text {name}" if text is None else text,
        prompt_tokens=1,
        completion_tokens=1,
        finish_reason=finish,
        logprob=None,
        seed=0,
        sampling="{}",
    )
    critique = None
    if ratings is not None:
        critique = Critique(
            critique_id=f"crit-{name}",
            candidate_id=candidate.candidate_id,
            prompt_id="p",
            iteration=1,
            critic="M_0",
            aspects=tuple(
                AspectRating(name=str(n), rating=r, comment="") for n, r in enumerate(ratings)
            ),
            text="",
            reference_used=False,
            status="scored" if ratings else "no_dictionary",
            attempts=1,
        )
    scored = Reward(
        candidate_id=candidate.candidate_id,
        prompt_id="p",
        iteration=1,
        reward_model="r",
        score=reward,
        status="scored" if reward is not None else "too_long",
    )
    return Judged(candidate=candidate, critique=critique, reward=scored)


def paired(rows, rule="success_vs_failure", top_k=3, seed=0):
    return pair(rule, PROMPT, rows, top_k=top_k, root_seed=seed, iteration=1)


CANDIDATES = st.lists(
    st.tuples(
        st.one_of(st.none(), st.lists(st.sampled_from([-1, 0, 1]), max_size=3)),
        st.one_of(st.none(), st.sampled_from([-1.5, 0.0, 0.5, 2.0])),
        st.sampled_from(["one", " one\n", "two", "three", "four four", "four  four", "", " "]),
        st.sampled_from(["stop", "stop", "stop", "length", "overlong"]),
    ),
    max_size=12,
).map(lambda rows: [judged(f"{n:02}", *row) for n, row in enumerate(rows)])


@given(
    rows=CANDIDATES,
    rule=st.sampled_from(RULES),
    top_k=st.integers(1, 5),
    seed=st.integers(0, 9),
    shuffle=st.randoms(use_true_random=False),
)
def test_pairs_obey_the_rules(rows, rule, top_k, seed, shuffle):
    pairs, made = paired(rows, rule, top_k, seed)
    by_id = {row.candidate.candidate_id: row for row in rows}
    sides = [(by_id[p.chosen_id], by_id[p.rejected_id]) for p in pairs]
    for chosen, rejected in sides:
        assert chosen.candidate.usable
        assert rejected.candidate.usable
        assert chosen.text != rejected.text
        if rule == "success_vs_failure":
            assert chosen.critique is not None
            assert set(chosen.ratings) == {1}
            assert rejected.critique is not None
            assert {0, -1} & set(rejected.ratings)
        else:
            assert chosen.score is not None
            assert rejected.score is not None
            assert chosen.score >= rejected.score
    assert len({(a.text, b.text) for a, b in sides}) == len(pairs)
    assert len({p.chosen_id for p in pairs}) == len(pairs) <= top_k
    assert len({p.rejected_id for p in pairs}) == len(pairs)
    assert [p.rank for p in pairs] == list(range(len(pairs)))
    assert made.made == len(pairs)
    assert (made.outcome == "paired") == bool(pairs)
    shuffled = shuffle.sample(rows, len(rows))
    assert paired(shuffled, rule, top_k, seed) == (pairs, made)


@given(rows=CANDIDATES, rule=st.sampled_from(["success", "top_reward"]), top_k=st.integers(1, 5))
def test_demonstrations_are_the_best_distinct_positives(rows, rule, top_k):
    made, outcome = demonstrate(rule, PROMPT, rows, top_k=top_k, iteration=1)
    assert len({" ".join(row.completion[0].content.split()) for row in made}) == len(made) <= top_k
    assert outcome.made == len(made)
    assert (outcome.outcome == "demonstrated") == bool(made)
    rewards = [-math.inf if row.reward is None else row.reward for row in made]
    assert rewards == sorted(rewards, reverse=True)
    if rule == "success":
        assert all(set(row.ratings) == {1} for row in made)
    backwards = demonstrate(rule, PROMPT, rows[::-1], top_k=top_k, iteration=1)
    assert backwards == (made, outcome)


def test_the_top_k_positives_by_reward_are_chosen():
    rows = [judged(f"good{n}", [1, 1, 1], n / 10) for n in range(5)]
    rows += [judged(f"unrewarded{n}", [1], None) for n in range(2)]
    rows += [judged(f"bad{n}", [1, 0], 9.0) for n in range(9)]
    pairs, made = paired(rows, top_k=3)
    assert [p.chosen_id for p in pairs] == ["cand-good4", "cand-good3", "cand-good2"]
    assert [p.chosen_reward for p in pairs] == [0.4, 0.3, 0.2]
    assert {p.rejected_ratings for p in pairs} == {(1, 0)}
    assert (made.outcome, made.made, made.rule) == ("paired", 3, "success_vs_failure")


def test_ties_go_by_id_and_missing_rewards_come_last():
    rows = [judged("b", [1], 1.0), judged("a", [1], 1.0), judged("0", [1], None)]
    rows += [judged(f"bad{n}", [0], 0.0) for n in range(3)]
    pairs, _ = paired(rows)
    assert [p.chosen_id for p in pairs] == ["cand-a", "cand-b", "cand-0"]


def test_rows_hold_conversations_and_stable_ids():
    (row,), _ = paired([judged("a", [1], 1.0), judged("b", [-1], 2.0)])
    assert row.prompt == PROMPT.messages
    assert row.chosen == (Message(role="assistant", content="text a"),)
    assert row.rejected == (Message(role="assistant", content="text b"),)
    (again,), _ = paired([judged("b", [-1], 2.0), judged("a", [1], 1.0)], seed=5)
    assert again.pair_id == row.pair_id


def test_negatives_are_random_and_depend_on_the_seed_alone():
    rows = [judged("good", [1], 1.0)] + [judged(f"bad{n}", [0], n) for n in range(8)]
    drawn = [paired(rows, seed=seed)[0][0].rejected_id for seed in range(40)]
    assert len(set(drawn)) > 5
    random.seed(1)
    assert drawn == [paired(rows, seed=seed)[0][0].rejected_id for seed in range(40)]


def test_fewer_negatives_give_fewer_pairs():
    rows = [judged(f"good{n}", [1], n) for n in range(3)] + [judged("bad", [0], 0.0)]
    pairs, _ = paired(rows)
    assert [p.chosen_id for p in pairs] == ["cand-good2"]


def test_a_text_judged_both_ways_pairs_with_others_only():
    rows = [judged("a", [1], 1.0, "same"), judged("b", [0], 1.0, " same"), judged("c", [0], 0.0)]
    pairs, _ = paired(rows)
    assert [(p.chosen_id, p.rejected_id) for p in pairs] == [("cand-a", "cand-c")]


@pytest.mark.parametrize(
    ("rows", "outcome"),
    [
        ([], Outcome.NO_CANDIDATES),
        ([judged("a", [1], 1.0, ""), judged("b", [0], 1.0, finish="length")], Outcome.NONE_USABLE),
        ([judged("a", [], 1.0), judged("b", None, 1.0)], Outcome.NONE_RATED),
        ([judged("a", [0], 1.0), judged("b", [-1], 1.0)], Outcome.NO_POSITIVE),
        ([judged("a", [1], 1.0), judged("b", [1], 1.0)], Outcome.NO_NEGATIVE),
        ([judged("a", [1], 1.0, "x"), judged("b", [0], 1.0, "x ")], Outcome.ALL_IDENTICAL),
    ],
)
def test_no_pair_has_its_reason(rows, outcome):
    pairs, made = paired(rows)
    assert pairs == []
    assert (made.outcome, made.made) == (outcome.value, 0)


def test_reward_alone_reads_no_critique():
    rows = [judged("a", [-1], 3.0), judged("b", None, 2.0), judged("c", [1], 1.0)]
    rows.append(judged("d", [1], None))
    pairs, made = paired(rows, "top_reward", top_k=1)
    assert (made.outcome, pairs[0].chosen_id) == ("paired", "cand-a")
    assert pairs[0].rejected_id in {"cand-b", "cand-c"}
    assert paired(rows, "top_reward", top_k=3)[1].outcome == "no_negative"
    assert paired([judged("d", [1], None)], "top_reward")[1].outcome == "none_rated"
