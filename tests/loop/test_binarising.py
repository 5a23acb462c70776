"""Binarisation: pairs by the rule's score, never of equal scores, never of one text with itself."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import CANDIDATE, GRADE, PROMPT
from lpfloop.configs.recipes import Binarisation
from lpfloop.critics.grading.graded_aspects import FINE_GRAINED
from lpfloop.loop.data.binarize import (
    BINARISATIONS,
    Binarising,
    binarisation_receipts,
    binarised_pairs,
    graded,
)
from lpfloop.loop.data.judged_candidates import READ
from lpfloop.loop.data.training_rows import Made
from lpfloop.stores.frames import frame_rows, rows_frame
from lpfloop.stores.records import Candidate, Grade, Pair, Prompt, Receipt, Yield

NOT_APPLICABLE = "not_applicable"
Told = tuple[Sequence[float | None], float | None]
"""The ratings of a completion in the four aspects, and its overall score."""


def completion(prompt: str, place: int, text: str | None = None) -> Candidate:
    said = f"answer {place}" if text is None else text
    return replace(CANDIDATE, prompt_id=prompt, candidate_id=f"{prompt}-{place}", text=said)


def grade(candidate: Candidate, aspect: str, rating: float | None, status: str = "") -> Grade:
    status = status or ("unread" if rating is None else "scored")
    return replace(
        GRADE,
        candidate_id=candidate.candidate_id,
        prompt_id=candidate.prompt_id,
        aspect=aspect,
        rating=rating,
        status=status,
    )


def grades(candidates: Sequence[Candidate], told: Sequence[Told]) -> list[Grade]:
    return [
        row
        for candidate, (ratings, overall) in zip(candidates, told, strict=True)
        for row in (
            *(grade(candidate, a, r) for a, r in zip(FINE_GRAINED, ratings, strict=True)),
            grade(candidate, "overall", overall),
        )
    ]


def how(rule: Binarisation, seed: int = 0) -> Binarising:
    return Binarising(rule=rule, iteration=2, root_seed=seed)


def binarised(
    candidates: Sequence[Candidate],
    said: Sequence[Grade],
    by: Binarising,
    prompts: Sequence[str] = ("p",),
) -> tuple[Made, list[Receipt]]:
    asked = rows_frame(Prompt, [replace(PROMPT, prompt_id=name) for name in prompts])
    scored = graded(
        rows_frame(Candidate, candidates).select(READ["candidates"]),
        rows_frame(Grade, said).select(READ["grades"]),
    )
    made = binarised_pairs(scored, asked, by)
    return made, binarisation_receipts(scored, made, by)


def pairs(
    candidates: Sequence[Candidate], said: Sequence[Grade], by: Binarising
) -> list[tuple[str, str]]:
    made, _ = binarised(candidates, said, by)
    return [(p.chosen_id, p.rejected_id) for p in frame_rows(Pair, made.rows)]


FOUR = [completion("p", n) for n in range(4)]
MEANS = [((3, 3, 3, 3), 9), ((5, 5, 4, 5), 7), ((1, 2, 1, 1), 8.5), ((4, 4, 4, 4), 1)]


def test_the_best_mean_meets_the_worst_or_a_random_other():
    said = grades(FOUR, MEANS)
    assert pairs(FOUR, said, how("best-vs-worst")) == [("p-1", "p-2")]
    drawn = {pairs(FOUR, said, how("mean-vs-random", seed))[0] for seed in range(40)}
    assert drawn == {("p-1", "p-0"), ("p-1", "p-2"), ("p-1", "p-3")}
    drawn = {pairs(FOUR, said, how("overall", seed))[0] for seed in range(40)}
    assert drawn == {("p-0", "p-1"), ("p-0", "p-2"), ("p-0", "p-3")}


def test_a_pair_names_its_rule_and_the_scores_that_decided():
    made, _ = binarised(FOUR, grades(FOUR, MEANS), how("best-vs-worst"))
    (pair,) = frame_rows(Pair, made.rows)
    assert (pair.rule, pair.iteration) == ("best-vs-worst", 2)
    assert (pair.chosen_reward, pair.rejected_reward) == (4.75, 1.25)
    assert (pair.chosen_ratings, pair.rejected_ratings) == ((), ())
    assert (pair.chosen[0].content, pair.rejected[0].content) == ("answer 1", "answer 2")


def test_half_points_decide_and_a_one_is_the_lowest_score():
    said = grades(FOUR[:3], [((3,) * 4, 8), ((3,) * 4, 8.5), ((3,) * 4, 1)])
    drawn = {pairs(FOUR[:3], said, how("overall", seed))[0] for seed in range(20)}
    assert drawn == {("p-1", "p-0"), ("p-1", "p-2")}


def test_a_mean_needs_every_aspect_that_applies():
    unread, spared, low = FOUR[:3]
    said = [
        *grades([unread], [((5, 5, 5, None), None)]),
        *grades([low], [((1, 1, 1, 1), None)]),
        *(grade(spared, a, 4) for a in FINE_GRAINED if a != "honesty"),
        grade(spared, "honesty", None, NOT_APPLICABLE),
    ]
    assert pairs(FOUR[:3], said, how("best-vs-worst")) == [("p-1", "p-2")]
    without = [g for g in said if (g.candidate_id, g.aspect) != ("p-1", "honesty")]
    assert pairs(FOUR[:3], without, how("best-vs-worst")) == []


def test_what_applies_in_no_aspect_has_no_mean():
    said = grades(FOUR[:2], MEANS[:2])
    said += [grade(FOUR[2], a, None, NOT_APPLICABLE) for a in FINE_GRAINED]
    assert pairs(FOUR[:3], said, how("best-vs-worst")) == [("p-1", "p-0")]


def test_each_prompt_without_a_pair_says_why():
    told: Mapping[str, tuple[list[Candidate], list[Told]]] = {
        "tied": ([completion("tied", n) for n in range(3)], [((3,) * 4, 2)] * 3),
        "no_negative": ([completion("no_negative", n) for n in range(2)],
                        [((3,) * 4, 2), ((3,) * 4, None)]),
        "none_rated": ([completion("none_rated", 0)], [((3,) * 4, None)]),
        "none_usable": ([completion("none_usable", 0, " \n")], [((3,) * 4, 5)]),
        "all_identical": ([completion("all_identical", n, text) for n, text in
                           enumerate(["Yes,  indeed.", "Yes, indeed. "])],
                          [((3,) * 4, 5), ((3,) * 4, 4)]),
        "paired": ([completion("paired", n) for n in range(2)], [((3,) * 4, 5), ((3,) * 4, 4)]),
        "no_candidates": ([], []),
    }  # fmt: skip
    candidates = [c for row, _ in told.values() for c in row]
    said = [g for row, ratings in told.values() for g in grades(row, ratings)]
    made, receipts = binarised(candidates, said, how("overall"), list(told))
    yields = frame_rows(Yield, made.yields)
    assert {y.prompt_id: y.outcome for y in yields} == {name: name for name in told}
    found = {(r.filter, r.items, r.outcome): (r.count, r.examples) for r in receipts}
    assert found["binarise:overall", "prompts", "kept"] == (1, ("paired",))
    assert found["binarise:overall", "prompts", "tied"] == (1, ("tied",))
    assert found["binarise:overall:scores", "candidates", "unrated"][0] == 2
    assert found["binarise:overall:scores", "candidates", "unusable"] == (1, ("none_usable-0",))
    assert sum(r.count for r in receipts if r.items == "prompts") == len(told)
    assert sum(r.count for r in receipts if r.items == "candidates") == len(candidates)


def test_of_equally_good_ones_that_is_chosen_which_has_somebody_to_beat():
    rows = [completion("p", n, text) for n, text in enumerate(["same", "other", "same"])]
    said = grades(rows, [((5,) * 4, None), ((5,) * 4, None), ((1,) * 4, None)])
    assert pairs(rows, said, how("mean-vs-random")) == [("p-1", "p-2")]


def test_every_two_completions_with_different_means_make_a_pair():
    names = [f"p-{n}" for n in (1, 3, 0, 2)]  # from the best mean down
    found = pairs(FOUR, grades(FOUR, MEANS), how("all-pairs"))
    assert found == [(a, b) for n, a in enumerate(names) for b in names[n + 1 :]]
    tied = [((3, 3, 3, 3), 9), ((5, 5, 4, 5), 7), ((3, 3, 3, 3), 1), ((4, 4, 4, None), 8)]
    assert pairs(FOUR, grades(FOUR, tied), how("all-pairs")) == [("p-1", "p-0"), ("p-1", "p-2")]


def test_two_texts_are_compared_once_and_not_at_all_where_their_scores_say_both():
    rows = [completion("p", n, text) for n, text in enumerate(["yes", " yes", "no", "perhaps"])]
    same = grades(rows, [((5,) * 4, None), ((4,) * 4, None), ((3,) * 4, None), ((1,) * 4, None)])
    assert pairs(rows, same, how("all-pairs")) == [("p-0", "p-2"), ("p-0", "p-3"), ("p-2", "p-3")]
    both = grades(rows, [((5,) * 4, None), ((2,) * 4, None), ((3,) * 4, None), ((1,) * 4, None)])
    assert pairs(rows, both, how("all-pairs")) == [("p-0", "p-3"), ("p-2", "p-3")]


ratings = st.sampled_from([None, 1.0, 2.0, 3.0, 4.0, 4.5, 5.0])
told_rows = st.tuples(st.tuples(ratings, ratings, ratings, ratings), ratings)
texts = st.sampled_from(["yes", "no", " yes ", "", "perhaps"])


def compared(found: Sequence[Pair]) -> list[tuple[tuple[str, str], ...]]:
    """The two texts of each pair, with their prompt."""
    return [
        tuple((p.prompt_id, side[0].content.strip()) for side in (p.chosen, p.rejected))
        for p in found
    ]


def comparable(
    candidates: Sequence[Candidate], said: Sequence[Grade]
) -> set[frozenset[tuple[str, str]]]:
    """Every two texts of which all means say alike which is the better one, by hand."""
    by_text: dict[tuple[str, str], list[float]] = {}
    for one in candidates:
        own = [g for g in said if g.candidate_id == one.candidate_id and g.aspect in FINE_GRAINED]
        given_ = [g.rating for g in own if g.rating is not None]
        if one.text.strip() and len(given_) == len(FINE_GRAINED):
            by_text.setdefault((one.prompt_id, one.text.strip()), []).append(sum(given_) / 4)
    return {
        frozenset((a, b))
        for a, b in permutations(by_text, 2)
        if a[0] == b[0]
        and any(x > y for x in by_text[a] for y in by_text[b])
        and not any(x < y for x in by_text[a] for y in by_text[b])
    }


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.tuples(texts, told_rows), max_size=5), min_size=1, max_size=4),
    st.sampled_from(BINARISATIONS),
    st.randoms(use_true_random=False),
)
def test_pairs_are_decided_and_differ_whatever_the_order(
    prompts: list[list[tuple[str, Told]]], rule: Binarisation, order: random.Random
) -> None:
    candidates, said = list[Candidate](), list[Grade]()
    for number, rows in enumerate(prompts):
        made = [completion(f"p{number}", n, text) for n, (text, _) in enumerate(rows)]
        candidates += made
        said += grades(made, [told for _, told in rows])
    names = [f"p{number}" for number in range(len(prompts))]
    first, receipts = binarised(candidates, said, how(rule), names)
    order.shuffle(candidates)
    order.shuffle(said)
    again, _ = binarised(candidates, said, how(rule), names)
    assert again.rows.equals(first.rows)
    assert again.yields.equals(first.yields)
    found = frame_rows(Pair, first.rows)
    if rule == "all-pairs":
        assert {frozenset(p) for p in compared(found)} == comparable(candidates, said)
        assert len(set(compared(found))) == len(found)
    else:
        assert len({p.prompt_id for p in found}) == len(found)
    for pair in found:
        assert pair.chosen_reward is not None
        assert pair.rejected_reward is not None
        assert pair.chosen_reward > pair.rejected_reward
        assert pair.chosen[0].content.split() != pair.rejected[0].content.split()
    alone = [n for n in names if n == "p0"]
    only, _ = binarised(candidates, said, how(rule), alone)
    assert frame_rows(Pair, only.rows) == [p for p in found if p.prompt_id == "p0"]
    kept = [r for r in receipts if r.items == "prompts" and r.outcome == "kept"]
    assert sum(r.count for r in kept) == len({p.prompt_id for p in found})


@pytest.mark.parametrize("rule", BINARISATIONS)
def test_nothing_gives_nothing(rule: Binarisation):
    made, receipts = binarised([], [], how(rule))
    assert made.rows.is_empty()
    assert frame_rows(Yield, made.yields)[0].outcome == "no_candidates"
    assert {r.outcome for r in receipts if r.items == "candidates"} == {"kept"}
