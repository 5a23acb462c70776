"""What is preferred is chosen; what nobody decided gives no pair, and the prompt says why."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import CANDIDATE, PREFERENCE, PROMPT
from lpfloop.loop.data.judged_candidates import READ
from lpfloop.loop.data.training_rows import Outcome
from lpfloop.loop.stages.prefer import preferred_pairs
from lpfloop.stores.frames import frame_rows, rows_frame
from lpfloop.stores.records import Candidate, Pair, Preference, Yield

VOTES = st.sampled_from(["first", "second", "tie", None])


def candidates(prompt: str, count: int) -> list[Candidate]:
    return [
        replace(CANDIDATE, candidate_id=f"{prompt}-{n}", prompt_id=prompt, text=f"text {n}")
        for n in range(count)
    ]


def vote(prompt: str, first: int, second: int, preferred) -> Preference:
    return replace(
        PREFERENCE,
        preference_id=f"pref-{prompt}-{first}-{second}",
        prompt_id=prompt,
        first_id=f"{prompt}-{first}",
        second_id=f"{prompt}-{second}",
        preferred=preferred,
        status="missing" if preferred is None else "scored",
    )


def made(drafts, votes, prompts=("p",)):
    asked = [replace(PROMPT, prompt_id=name) for name in prompts]
    frames = (
        rows_frame(Candidate, drafts).select(READ["candidates"]),
        rows_frame(Preference, votes).select(READ["preferences"]),
    )
    found = preferred_pairs(*frames, asked, 3)
    return frame_rows(Pair, found.rows), frame_rows(Yield, found.yields)


@pytest.mark.parametrize(("preferred", "chosen"), [("first", "p-0"), ("second", "p-1")])
def test_the_preferred_answer_is_chosen(preferred, chosen):
    (pair,), (outcome,) = made(candidates("p", 2), [vote("p", 0, 1, preferred)])
    assert pair.chosen_id == chosen
    assert {pair.chosen_id, pair.rejected_id} == {"p-0", "p-1"}
    assert pair.chosen[0].content == f"text {chosen[-1]}"
    assert pair.prompt == PROMPT.messages
    assert (pair.rule, pair.rank, pair.iteration) == ("preferred", 0, 3)
    assert (pair.chosen_ratings, pair.chosen_reward) == ((), None)
    assert (outcome.outcome, outcome.made) == (Outcome.PAIRED, 1)


@pytest.mark.parametrize(
    ("votes", "outcome"),
    [([], "not_compared"), ([("tie")], "tied"), ([None], "unread"), ([None, "tie"], "tied")],
)
def test_what_nobody_decided_gives_no_pair(votes, outcome):
    rows = [vote("p", 0, n, preferred) for n, preferred in enumerate(votes, start=1)]
    pairs, (said,) = made(candidates("p", 3), rows)
    assert pairs == []
    assert (said.outcome, said.made) == (outcome, 0)


@given(
    votes=st.lists(st.tuples(st.sampled_from(["p", "q"]), VOTES), max_size=6),
    mixed=st.randoms(use_true_random=False),
)
def test_there_is_a_pair_for_every_decision_whatever_the_order_of_the_rows(votes, mixed):
    drafts = [*candidates("p", 7), *candidates("q", 7)]
    rows = [vote(prompt, 0, n, preferred) for n, (prompt, preferred) in enumerate(votes, start=1)]
    pairs, yields = made(drafts, rows, ("p", "q"))
    decided = [row for row in rows if row.preferred in ("first", "second")]
    assert len(pairs) == len(decided) == sum(y.made for y in yields)
    for row in decided:
        sides = [row.first_id, row.second_id]
        wanted = sides if row.preferred == "first" else sides[::-1]
        assert [p for p in pairs if [p.chosen_id, p.rejected_id] == wanted]
    for prompt in ("p", "q"):
        own = [pair.rank for pair in pairs if pair.prompt_id == prompt]
        assert own == list(range(len(own)))
    mixed.shuffle(drafts)
    mixed.shuffle(rows)
    assert made(drafts, rows, ("p", "q")) == (pairs, yields)


def test_a_pair_of_answers_that_was_compared_again_counts_once():
    votes = [vote("p", 0, 1, "first"), vote("p", 0, 1, "second")]
    (pair,), _ = made(candidates("p", 2), votes)
    assert pair.chosen_id == "p-1"
