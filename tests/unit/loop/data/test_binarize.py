"""Binarisation: pairs by the rule's score, never of equal scores or equal texts."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from rows import CANDIDATE, GRADE, PROMPT

from lpfloop.configs.recipes import Binarisation
from lpfloop.critics.grading.grade_reply import FINE_GRAINED
from lpfloop.loop.data.binarize import (
    BINARISATIONS,
    Binarising,
    add_scores,
    binarisation_counts,
    binarised_pairs,
)
from lpfloop.loop.data.judged_candidates import READ
from lpfloop.loop.data.training_rows import Made
from lpfloop.stores.frames import frame_rows, rows_frame
from lpfloop.stores.records import Candidate, FilterCount, Grade, Pair, PairingOutcome, Prompt

NOT_APPLICABLE = "not_applicable"
Told = tuple[Sequence[float | None], float | None]
"""A completion's ratings in the four aspects, and its overall score."""


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
) -> tuple[Made, list[FilterCount]]:
    asked = rows_frame(Prompt, [replace(PROMPT, prompt_id=name) for name in prompts])
    scored = add_scores(
        rows_frame(Candidate, candidates).select(READ["candidates"]),
        rows_frame(Grade, said).select(READ["grades"]),
    )
    made = binarised_pairs(scored, asked, by)
    return made, binarisation_counts(scored, made, by)


def pairs(
    candidates: Sequence[Candidate], said: Sequence[Grade], by: Binarising
) -> list[tuple[str, str]]:
    made, _ = binarised(candidates, said, by)
    return [(p.chosen_id, p.rejected_id) for p in frame_rows(Pair, made.rows)]


FOUR = [completion("p", n) for n in range(4)]
MEANS = [((3, 3, 3, 3), 9), ((5, 5, 4, 5), 7), ((1, 2, 1, 1), 8.5), ((4, 4, 4, 4), 1)]


def test_best_against_worst_or_random():
    said = grades(FOUR, MEANS)
    assert pairs(FOUR, said, how("best-vs-worst")) == [("p-1", "p-2")]
    every = {("p-1", "p-3"), ("p-1", "p-0"), ("p-1", "p-2"), ("p-3", "p-0"), ("p-3", "p-2")}
    assert {*pairs(FOUR, said, how("all-pairs"))} == {*every, ("p-0", "p-2")}
    drawn = {pairs(FOUR, said, how("mean-vs-random", seed))[0] for seed in range(12)}
    assert drawn == {("p-1", "p-0"), ("p-1", "p-2"), ("p-1", "p-3")}


def test_mean_needs_every_aspect():
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


def test_yields_and_receipts():
    told: Mapping[str, tuple[list[Candidate], list[Told]]] = {
        "tied": ([completion("tied", n) for n in range(3)], [((3,) * 4, 2)] * 3),
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
    made, filter_counts = binarised(candidates, said, how("overall"), list(told))
    outcomes = frame_rows(PairingOutcome, made.outcomes)
    assert {y.prompt_id: y.outcome for y in outcomes} == {name: name for name in told}
    found = {(r.filter, r.items, r.outcome): (r.count, r.examples) for r in filter_counts}
    assert found["binarise:overall", "prompts", "kept"] == (1, ("paired",))
    assert found["binarise:overall", "prompts", "tied"] == (1, ("tied",))
    assert found["binarise:overall:scores", "candidates", "unrated"][0] == 1
    assert found["binarise:overall:scores", "candidates", "unusable"] == (1, ("none_usable-0",))
    assert sum(r.count for r in filter_counts if r.items == "prompts") == len(told)
    assert sum(r.count for r in filter_counts if r.items == "candidates") == len(candidates)


ratings = st.sampled_from([None, 1.0, 2.0, 3.0, 4.0, 4.5, 5.0])
told_rows = st.tuples(st.tuples(ratings, ratings, ratings, ratings), ratings)
texts = st.sampled_from(["yes", "no", " yes ", "", "perhaps"])


@settings(max_examples=6)
@given(
    st.lists(st.lists(st.tuples(texts, told_rows), max_size=5), min_size=1, max_size=4),
    st.sampled_from(BINARISATIONS),
    st.randoms(use_true_random=False),
)
def test_pairs_in_any_order(
    prompts: list[list[tuple[str, Told]]], rule: Binarisation, order: random.Random
) -> None:
    candidates, said = list[Candidate](), list[Grade]()
    for number, rows in enumerate(prompts):
        made = [completion(f"p{number}", n, text) for n, (text, _) in enumerate(rows)]
        candidates += made
        said += grades(made, [told for _, told in rows])
    names = [f"p{number}" for number in range(len(prompts))]
    first, _ = binarised(candidates, said, how(rule), names)
    order.shuffle(candidates)
    order.shuffle(said)
    again, _ = binarised(candidates, said, how(rule), names)
    assert again.rows.equals(first.rows)
    assert again.outcomes.equals(first.outcomes)
    found = frame_rows(Pair, first.rows)
    for pair in found:
        assert pair.chosen_reward is not None
        assert pair.rejected_reward is not None
        assert pair.chosen_reward > pair.rejected_reward
        assert pair.chosen[0].content.split() != pair.rejected[0].content.split()
