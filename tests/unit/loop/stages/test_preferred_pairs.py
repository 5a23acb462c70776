"""The preferred answer is chosen; an undecided prompt gives no pair, and stores the reason."""

from dataclasses import replace

from rows import CANDIDATE, PREFERENCE, PROMPT

from lpfloop.loop.data.judged_candidates import READ
from lpfloop.loop.data.training_rows import Outcome
from lpfloop.loop.stages.prefer import preferred_pairs
from lpfloop.stores.frames import frame_rows, rows_frame
from lpfloop.stores.records import Candidate, Pair, PairingOutcome, Preference


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
    return frame_rows(Pair, found.rows), frame_rows(PairingOutcome, found.outcomes)


def test_preferred_is_chosen(subtests):
    for preferred, chosen in [("first", "p-0"), ("second", "p-1")]:
        with subtests.test(case=preferred):
            (pair,), (outcome,) = made(candidates("p", 2), [vote("p", 0, 1, preferred)])
            assert pair.chosen_id == chosen
            assert {pair.chosen_id, pair.rejected_id} == {"p-0", "p-1"}
            assert pair.chosen[0].content == f"text {chosen[-1]}"
            assert pair.prompt == PROMPT.messages
            assert (pair.rule, pair.rank, pair.iteration) == ("preferred", 0, 3)
            assert (pair.chosen_ratings, pair.chosen_reward) == ((), None)
            assert (outcome.outcome, outcome.made) == (Outcome.PAIRED, 1)


def test_undecided_skipped_for_pairs(subtests):
    for votes, outcome in [
        ([], "not_compared"),
        ([("tie")], "tied"),
        ([None], "unread"),
        ([None, "tie"], "tied"),
    ]:
        with subtests.test(case=votes):
            rows = [vote("p", 0, n, preferred) for n, preferred in enumerate(votes, start=1)]
            pairs, (said,) = made(candidates("p", 3), rows)
            assert pairs == []
            assert (said.outcome, said.made) == (outcome, 0)


def test_compared_again_counts_once():
    votes = [vote("p", 0, 1, "first"), vote("p", 0, 1, "second")]
    (pair,), _ = made(candidates("p", 2), votes)
    assert pair.chosen_id == "p-1"
