"""Pairs and demonstrations obey the rules of Section 3.3 for any input."""

import math
import random
from dataclasses import dataclass, replace
from statistics import fmean

from hypothesis import given, settings
from hypothesis import strategies as st
from rows import CANDIDATE, CRITIQUE, PROMPT, REWARD

from lpfloop.loop.data.judged_candidates import Deciding, judge, verdicts
from lpfloop.loop.data.pairs import RULES, Outcome, Pairing, demonstrate, pair
from lpfloop.stores.frames import frame_rows, rows_frame
from lpfloop.stores.keys import derive_seed
from lpfloop.stores.records import (
    AspectRating,
    Candidate,
    Critique,
    Demonstration,
    Message,
    Pair,
    PairingOutcome,
    Prompt,
    Reward,
)

ASKED = replace(PROMPT, prompt_id="p", reference=None, checks=())


@dataclass(frozen=True)
class Judged:
    """A candidate with its critique and score."""

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
        """Return the value that a rule ranks by: the reward, or the mean of the ratings."""
        if rule != "rating_extremes":
            return self.score
        return fmean(self.ratings) if self.ratings else None


def judged(name, ratings, reward, text=None, finish="stop"):
    """Make a candidate; `ratings` None: no critique; empty: an unscored one."""
    ids = {"candidate_id": f"cand-{name}", "prompt_id": "p"}
    text = f"text {name}" if text is None else text
    aspects = [AspectRating(name=str(n), rating=r, comment="") for n, r in enumerate(ratings or ())]
    status = "scored" if ratings else "no_dictionary"
    said = replace(
        CRITIQUE, critique_id=f"crit-{name}", aspects=tuple(aspects), status=status, **ids
    )
    return Judged(
        candidate=replace(CANDIDATE, text=text, finish_reason=finish, **ids),
        critique=None if ratings is None else said,
        reward=replace(
            REWARD, score=reward, status="too_long" if reward is None else "scored", **ids
        ),
    )


def frames(rows):
    """Return the judged candidates in columns."""
    critiques = [row.critique for row in rows if row.critique is not None]
    return judge(
        rows_frame(Candidate, [row.candidate for row in rows]),
        rows_frame(Reward, [row.reward for row in rows]),
        verdicts(rows_frame(Critique, critiques)) if critiques else None,
    )


def paired(rows, rule="success_vs_failure", top_k=3, seed=0, prompts=(ASKED,), *, distinct=False):
    how = Pairing(rule=rule, top_k=top_k, root_seed=seed, iteration=1, distinct=distinct)
    made = pair(frames(rows), rows_frame(Prompt, prompts), how)
    outcomes = frame_rows(PairingOutcome, made.outcomes)
    return frame_rows(Pair, made.rows), outcomes[0] if len(prompts) == 1 else outcomes


def test_cut_failures_are_rejected():
    rows = [
        judged("whole success", [1], 1.0),
        judged("cut success", [1], 3.0, finish="length"),
        judged("cut failure", [-1], 2.0, finish="length"),
        judged("failed request", [-1], 2.0, finish="failed"),
        judged("blank", [-1], 2.0, text=" ", finish="length"),
    ]
    how = Pairing(rule="success_vs_failure", top_k=3, root_seed=0, iteration=1)
    prompts = rows_frame(Prompt, [ASKED])
    assert not len(pair(frames(rows), prompts, how).rows)
    made = pair(frames(rows), prompts, replace(how, cut_answers="rejected"))
    (found,) = frame_rows(Pair, made.rows)
    assert (found.chosen_id, found.rejected_id) == ("cand-whole success", "cand-cut failure")
    assert (found.chosen_cut, found.rejected_cut) == (None, True)


def demonstrated(rows, rule, top_k):
    how = Pairing(rule=rule, top_k=top_k, root_seed=0, iteration=1)
    made = demonstrate(frames(rows), rows_frame(Prompt, [ASKED]), how)
    (outcome,) = frame_rows(PairingOutcome, made.outcomes)
    return frame_rows(Demonstration, made.rows), outcome


def in_plain_words(rows, rule, top_k, seed):
    """Pair one prompt's candidates by a literal reading of Section 3.3, one after the other."""
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
FEW = settings(max_examples=25)
CANDIDATES = st.lists(
    st.tuples(
        st.one_of(st.none(), st.lists(st.sampled_from([-1, 0, 1]), max_size=3)),
        st.one_of(st.none(), st.sampled_from([-1.5, 0.0, 0.5, 2.0])),
        st.sampled_from(TEXTS),
        st.sampled_from(["stop", "stop", "stop", "length", "overlong"]),
    ),
    max_size=12,
).map(lambda rows: [judged(f"{n:02}", *row) for n, row in enumerate(rows)])


@FEW
@given(
    rows=CANDIDATES,
    rule=st.sampled_from(RULES),
    top_k=st.integers(1, 5),
    seed=st.integers(0, 9),
)
def test_pairs_match_plain_definition(rows, rule, top_k, seed):
    pairs, made = paired(rows, rule, top_k, seed)
    expected = in_plain_words(rows, rule, top_k, seed)
    assert [(p.chosen_id, p.rejected_id) for p in pairs] == expected
    assert (made.made, made.outcome == "paired") == (len(pairs), bool(pairs))
    assert paired(rows[::-1], rule, top_k, seed) == (pairs, made)


def rated_by(who, name, *ratings, status="scored"):
    return replace(judged(name, ratings, 0.0).critique, critic=who, status=status)


def said_of(critiques, deciding=None):
    """Return the counted critiques of the candidates a to f."""
    rows = [judged(name, None, 0.0) for name in "abcdef"]
    said = judge(
        rows_frame(Candidate, [row.candidate for row in rows]),
        rows_frame(Reward, [row.reward for row in rows]),
        verdicts(rows_frame(Critique, critiques), deciding),
    )
    return said["ratings"].to_list(), said["success"].to_list(), said["failure"].to_list()


def test_person_has_the_last_word():
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


@FEW
@given(rows=CANDIDATES, rule=st.sampled_from(["success", "top_reward"]), top_k=st.integers(1, 5))
def test_best_distinct_demonstrations(rows, rule, top_k):
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


def test_distinct_positives():
    rows = [judged("a", [1], 3.0, "x"), judged("b", [1], 2.0, "x "), judged("c", [1], 1.0)]
    rows += [judged("d", [-1], 0.0), judged("e", [0], 0.0)]
    chosen = [
        {pair.chosen_id for pair in paired(rows, top_k=2, distinct=distinct)[0]}
        for distinct in (False, True)
    ]
    assert chosen == [{"cand-a", "cand-b"}, {"cand-a", "cand-c"}]


def test_equal_texts_pair_once():
    rows = [judged("a", [1], 3.0, "x"), judged("b", [1], 2.0, "x "), judged("c", [-1], 1.0, "y")]
    rows += [judged("d", [-1], 0.0, "y ")]
    for seed in range(5):
        assert len(paired(rows, seed=seed)[0]) == 1


def test_each_rejected_is_taken_once():
    rows = [judged("a", [1], 3.0, "x"), judged("b", [1], 2.0, "z"), judged("c", [-1], 1.0, "x ")]
    rows += [judged("d", [-1], 0.0, "y")]
    for seed in range(5):
        made = [(pair.chosen_id, pair.rejected_id) for pair in paired(rows, seed=seed)[0]]
        assert made == [("cand-a", "cand-d"), ("cand-b", "cand-c")]


def test_extremes_take_the_lowest_first():
    rows = [judged(name, [1], float(worth)) for worth, name in enumerate("edcba")]
    made, _ = paired(rows, "reward_extremes", top_k=2)
    assert [(p.chosen_id[-1], p.rejected_id[-1]) for p in made] == [("a", "e"), ("b", "d")]


def test_receipts_of_repeated_texts():
    rows = [judged("a", [1], 3.0, "x"), judged("b", [1], 2.0, "x "), judged("c", [-1], 0.0)]
    how = Pairing(rule="success_vs_failure", top_k=2, root_seed=0, iteration=1, distinct=True)
    made = pair(frames(rows), rows_frame(Prompt, [ASKED]), how)
    kept, repeated = made.filter_counts
    assert (kept.outcome, kept.examples) == ("kept", ("cand-a",))
    assert repeated.examples == ("cand-b",)


def test_rows_and_stable_ids():
    (row,), _ = paired([judged("a", [1], 1.0), judged("b", [-1], 2.0)])
    assert row.prompt == ASKED.messages
    assert row.chosen == (Message(role="assistant", content="text a"),)
    assert row.rejected == (Message(role="assistant", content="text b"),)
    (again,), _ = paired([judged("b", [-1], 2.0), judged("a", [1], 1.0)], seed=5)
    assert again.pair_id == row.pair_id


def test_no_pair_has_its_reason(subtests):
    for rows, outcome in [
        ([], Outcome.NO_CANDIDATES),
        ([judged("a", [1], 1.0, ""), judged("b", [0], 1.0, finish="length")], Outcome.NONE_USABLE),
        ([judged("a", [], 1.0), judged("b", None, 1.0)], Outcome.NONE_RATED),
        ([judged("a", [0], 1.0), judged("b", [-1], 1.0)], Outcome.NO_POSITIVE),
        ([judged("a", [1], 1.0), judged("b", [1], 1.0)], Outcome.NO_NEGATIVE),
        ([judged("a", [1], 1.0, "x"), judged("b", [0], 1.0, "x ")], Outcome.ALL_IDENTICAL),
    ]:
        with subtests.test(case=outcome):
            pairs, made = paired(rows)
            assert pairs == []
            assert (made.outcome, made.made) == (outcome.value, 0)
