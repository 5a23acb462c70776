"""Pairs and demonstrations obey the rules of Section 3.3, whatever is thrown at them."""

import math
import random
from dataclasses import dataclass, replace
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import CANDIDATE, REWARD
from lpfloop.loop.data.judged_candidates import READ, Deciding, judge, verdicts
from lpfloop.loop.data.pairs import RULES, Outcome, Pairing, demonstrate, pair
from lpfloop.loop.data.receipts import accounts
from lpfloop.stores.frames import frame_rows, rows_frame
from lpfloop.stores.keys import derive_seed
from lpfloop.stores.records import (
    AspectRating,
    Candidate,
    Critique,
    Demonstration,
    Message,
    Pair,
    Prompt,
    Reward,
    Yield,
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
PAIR_RULES = ["success_vs_failure", "top_reward", "reward_extremes", "rating_extremes"]


@dataclass(frozen=True)
class Judged:
    """A candidate with what was said of it, as plain as can be."""

    candidate: Candidate
    critique: Critique | None
    reward: Reward

    @property
    def score(self):
        return self.reward.score

    @property
    def ratings(self):
        aspects = () if self.critique is None else self.critique.aspects
        return tuple(aspect.rating for aspect in aspects)

    @property
    def text(self):
        return " ".join(self.candidate.text.split())

    def worth(self, rule):
        """What a rule ranks by: the reward, or the mean of the ratings."""
        if rule != "rating_extremes":
            return self.score
        return fmean(self.ratings) if self.ratings else None


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


def frames(rows):
    """Return the judged candidates in columns."""
    critiques = [row.critique for row in rows if row.critique is not None]
    return judge(
        rows_frame(Candidate, [row.candidate for row in rows]),
        rows_frame(Reward, [row.reward for row in rows]),
        verdicts(rows_frame(Critique, critiques)) if critiques else None,
    )


def paired(rows, rule="success_vs_failure", top_k=3, seed=0, prompts=(PROMPT,), *, distinct=False):
    how = Pairing(rule=rule, top_k=top_k, root_seed=seed, iteration=1, distinct=distinct)
    made = pair(frames(rows), rows_frame(Prompt, prompts), how)
    yields = frame_rows(Yield, made.yields)
    return frame_rows(Pair, made.rows), yields[0] if len(prompts) == 1 else yields


def demonstrated(rows, rule, top_k):
    how = Pairing(rule=rule, top_k=top_k, root_seed=0, iteration=1)
    made = demonstrate(frames(rows), rows_frame(Prompt, [PROMPT]), how)
    (outcome,) = frame_rows(Yield, made.yields)
    return frame_rows(Demonstration, made.rows), outcome


def in_plain_words(rows, rule, top_k, seed):
    """Pair one prompt's candidates as Section 3.3 says it, one candidate after the other."""
    usable = [r for r in rows if r.candidate.finish_reason == "stop" and r.text]
    ranked = sorted(
        usable,
        key=lambda r: (
            -math.inf if r.worth(rule) is None else r.worth(rule),
            [-ord(c) for c in name(r)],
        ),
        reverse=True,
    )
    extremes = rule in ("reward_extremes", "rating_extremes")
    if rule == "top_reward" or extremes:
        valued = [r for r in ranked if r.worth(rule) is not None]
        positives, negatives = valued[:top_k], valued[top_k:]
        if extremes:
            negatives = [r for r in negatives if r.worth(rule) < positives[-1].worth(rule)]
    else:
        rated = [r for r in ranked if r.critique is not None and r.critique.status == "scored"]
        positives = [r for r in rated if all(rating == 1 for rating in r.ratings)][:top_k]
        negatives = [r for r in rated if any(rating < 1 for rating in r.ratings)]
    draw = random.Random(derive_seed(seed, "pair", 1, rule, "p"))
    random_order = draw.sample(negatives, len(negatives))
    left = negatives[::-1] if extremes else random_order
    made = list[tuple[Judged, Judged]]()
    for chosen in positives:
        for rejected in left:
            texts = (chosen.text, rejected.text)
            if chosen.text != rejected.text and texts not in [(a.text, b.text) for a, b in made]:
                made.append((chosen, rejected))
                left.remove(rejected)
                break
    return [(name(chosen), name(rejected)) for chosen, rejected in made]


def name(row):
    return row.candidate.candidate_id


TEXTS = [
    *("one", " one\n", "two", "three", "four four", "four  four", "four\x1cfour", "", " ", "\x1d"),
    *("four\xa0four", "\u2003four\u3000 four\x85"),
]
CANDIDATES = st.lists(
    st.tuples(
        st.one_of(st.none(), st.lists(st.sampled_from([-1, 0, 1]), max_size=3)),
        st.one_of(st.none(), st.sampled_from([-1.5, 0.0, 0.5, 2.0])),
        st.sampled_from(TEXTS),
        st.sampled_from(["stop", "stop", "stop", "length", "overlong"]),
    ),
    max_size=12,
).map(lambda rows: [judged(f"{n:02}", *row) for n, row in enumerate(rows)])


@given(
    rows=CANDIDATES,
    rule=st.sampled_from(PAIR_RULES),
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
            better, worse = chosen.worth(rule), rejected.worth(rule)
            assert better is not None
            assert worse is not None
            assert better >= worse
            assert rule == "top_reward" or better > worse
    assert len({(a.text, b.text) for a, b in sides}) == len(pairs)
    assert len({p.chosen_id for p in pairs}) == len(pairs) <= top_k
    assert len({p.rejected_id for p in pairs}) == len(pairs)
    assert [p.rank for p in pairs] == list(range(len(pairs)))
    assert made.made == len(pairs)
    assert (made.outcome == "paired") == bool(pairs)
    shuffled = shuffle.sample(rows, len(rows))
    assert paired(shuffled, rule, top_k, seed) == (pairs, made)


@given(
    rows=CANDIDATES,
    rule=st.sampled_from(RULES),
    top_k=st.integers(1, 5),
    seed=st.integers(0, 9),
)
def test_pairs_are_those_of_the_rule_in_plain_words(rows, rule, top_k, seed):
    pairs, _ = paired(rows, rule, top_k, seed)
    expected = in_plain_words(rows, rule, top_k, seed)
    assert [(p.chosen_id, p.rejected_id) for p in pairs] == expected


@settings(max_examples=40)
@given(sets=st.lists(CANDIDATES, min_size=2, max_size=4), rule=st.sampled_from(RULES))
def test_prompts_in_one_frame_do_not_see_each_other(sets, rule):
    prompts = [replace(PROMPT, prompt_id=f"p{n}") for n in range(len(sets))]
    moved = [[of(row, n) for row in rows] for n, rows in enumerate(sets)]
    pairs, yields = paired([row for rows in moved for row in rows], rule, prompts=prompts)
    alone = [paired(rows, rule, prompts=[p]) for rows, p in zip(moved, prompts, strict=True)]
    assert pairs == [row for rows, _ in alone for row in rows]
    assert yields == [made for _, made in alone]


@given(
    rows=CANDIDATES,
    rule=st.sampled_from(PAIR_RULES),
    top_k=st.integers(1, 5),
    seed=st.integers(0, 9),
    shuffle=st.randoms(use_true_random=False),
)
def test_distinct_positives_are_those_of_the_best_of_each_text(rows, rule, top_k, seed, shuffle):
    """As if what repeats the text of one of the top k were not there."""
    able = [row for row in rows if row.candidate.usable and can_be_chosen(row, rule)]
    able.sort(key=lambda r: (r.worth(rule) is None, -(r.worth(rule) or 0), name(r)))
    best = dict[str, Judged]()
    for row in able:
        best.setdefault(row.text, row)
    top = dict(list(best.items())[:top_k])
    left = [r for r in rows if r not in able or top.get(r.text, r) == r]
    pairs, made = paired(rows, rule, top_k, seed, distinct=True)
    assert pairs == paired(left, rule, top_k, seed)[0]
    assert {p.chosen_id for p in pairs} <= {name(row) for row in top.values()}
    shuffled = shuffle.sample(rows, len(rows))
    assert paired(shuffled, rule, top_k, seed, distinct=True) == (pairs, made)


def can_be_chosen(row, rule):
    if rule != "success_vs_failure":
        return row.worth(rule) is not None
    read = row.critique is not None and row.critique.status == "scored"
    return read and all(rating == 1 for rating in row.ratings)


def test_a_receipt_tells_how_many_positives_repeat_a_better_one():
    rows = [judged(f"{n}", [1], n, text) for n, text in enumerate(("b", "a", "a\n", "a", "c"))]
    rows += [judged("bad", [0], 9.0, "a"), judged("cut", [1], 9.0, "a", "length")]
    how = Pairing(rule="success_vs_failure", top_k=2, root_seed=0, iteration=1, distinct=True)
    asked = rows_frame(Prompt, [PROMPT])
    made = pair(frames(rows), asked, how)
    (account,) = accounts(made.receipts)
    assert (account.filter, account.received, account.kept) == ("distinct_positives", 5, 3)
    told = {outcome.outcome: outcome.examples for outcome in account.outcomes}
    assert told["repeated"] == ("cand-2", "cand-1")
    assert not pair(
        frames(rows), rows_frame(Prompt, [PROMPT]), replace(how, distinct=False)
    ).receipts


def of(row, number):
    """Return a candidate as one of prompt `number`."""
    ids = {"prompt_id": f"p{number}", "candidate_id": f"{name(row)}-{number}"}
    critique = None if row.critique is None else replace(row.critique, **ids)
    return Judged(replace(row.candidate, **ids), critique, replace(row.reward, **ids))


def rated_by(who, name, *ratings, status="scored"):
    return replace(judged(name, ratings, 0.0).critique, critic=who, status=status)


def said_of(critiques, deciding=None):
    """What counts of critiques on the candidates a to f."""
    rows = [judged(name, None, 0.0) for name in "abcdef"]
    said = judge(
        rows_frame(Candidate, [row.candidate for row in rows]),
        rows_frame(Reward, [row.reward for row in rows]),
        verdicts(rows_frame(Critique, critiques), deciding),
    )
    return said["ratings"].to_list(), said["success"].to_list(), said["failure"].to_list()


def test_a_person_has_the_last_word_and_a_machine_where_no_person_was_asked():
    machine = [rated_by("M_0", "a", 1), rated_by("M_0", "b", 0), rated_by("M_0", "d", 1)]
    machine += [rated_by("M_0", "e", 1, 1), rated_by("M_0", "f", 1)]
    people = [rated_by("human:ann", name, -1) for name in "ac"]
    people += [rated_by("human:ann", "d", status="unrated"), rated_by("human:ann", "e", 0)]
    first = [[-1], [0], [-1], [1], [0], [1]]
    for critiques in (machine + people, people + machine):
        ratings, success, failure = said_of(critiques)
        assert ratings == first
        assert success == [False, False, False, True, False, True]
        assert failure == [True, True, True, False, True, False]
    ratings, *_ = said_of(machine + people, Deciding(people="ignored"))
    assert ratings == [[1], [0], [], [1], [1, 1], [1]]


def test_of_several_people_the_mean_of_what_each_said_last_counts():
    """Half-way between two levels is the lower one."""
    people = [
        *(rated_by(f"human:{who}", "a", rating) for who, rating in (("x", 1), ("y", 0))),
        *(rated_by(f"human:{who}", "b", rating) for who, rating in (("x", 1), ("y", 1), ("z", 0))),
        *(rated_by(f"human:{who}", "c", rating) for who, rating in (("x", -1), ("y", 0))),
        *(rated_by("human:x", "d", rating) for rating in (-1, 1)),
        *(rated_by("human:x", "e", *ratings) for ratings in ((1, 1, 1), (0, 1))),
    ]
    ratings, success, failure = said_of(people)
    assert ratings == [[0], [1], [-1], [1], [0, 1], []]
    assert success == [False, True, False, True, False, False]
    assert failure == [True, False, True, False, True, False]


@given(rows=CANDIDATES, rule=st.sampled_from(["success", "top_reward"]), top_k=st.integers(1, 5))
def test_demonstrations_are_the_best_distinct_positives(rows, rule, top_k):
    made, outcome = demonstrated(rows, rule, top_k)
    assert len({" ".join(row.completion[0].content.split()) for row in made}) == len(made) <= top_k
    assert outcome.made == len(made)
    assert (outcome.outcome == "demonstrated") == bool(made)
    rewards = [-math.inf if row.reward is None else row.reward for row in made]
    assert rewards == sorted(rewards, reverse=True)
    if rule == "success":
        assert all(set(row.ratings) == {1} for row in made)
    backwards = demonstrated(rows[::-1], rule, top_k)
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


def test_the_best_stands_against_the_worst_and_never_against_its_equal():
    rows = [judged(n, None, reward) for n, reward in zip("abcd", (3.0, 2.0, 1.0, 0.0), strict=True)]
    pairs, _ = paired(rows, "reward_extremes", top_k=2)
    sides = [(p.chosen_id, p.rejected_id) for p in pairs]
    assert sides == [("cand-a", "cand-d"), ("cand-b", "cand-c")]
    equal = [judged("a", None, 1.0), judged("b", None, 1.0)]
    assert paired(equal, "reward_extremes", top_k=1)[1].outcome == "no_negative"


def test_reward_alone_reads_no_critique():
    rows = [judged("a", [-1], 3.0), judged("b", None, 2.0), judged("c", [1], 1.0)]
    rows.append(judged("d", [1], None))
    pairs, made = paired(rows, "top_reward", top_k=1)
    assert (made.outcome, pairs[0].chosen_id) == ("paired", "cand-a")
    assert pairs[0].rejected_id in {"cand-b", "cand-c"}
    assert paired(rows, "top_reward", top_k=3)[1].outcome == "no_negative"
    assert paired([judged("d", [1], None)], "top_reward")[1].outcome == "none_rated"


def test_a_cut_answer_is_the_best_demonstration_only_where_it_is_as_good_as_any():
    drafts = [
        replace(CANDIDATE, candidate_id=f"c{n}", text=f"text {n}", finish_reason=reason)
        for n, reason in enumerate(("stop", "length", "failed"))
    ]
    scores = [
        replace(REWARD, candidate_id=f"c{n}", prompt_id=CANDIDATE.prompt_id, score=float(n))
        for n in range(3)
    ]
    frames = (
        rows_frame(Candidate, drafts).select(READ["candidates"]),
        rows_frame(Reward, scores).select(READ["rewards"]),
    )
    asked = rows_frame(Prompt, [replace(PROMPT, prompt_id=CANDIDATE.prompt_id)])
    how = Pairing(rule="top_reward", top_k=1, root_seed=0, iteration=1)
    best = [
        demonstrate(judge(*frames, cut=cut), asked, how).rows["candidate_id"].to_list()
        for cut in (False, True)
    ]
    assert best == [["c0"], ["c1"]]
