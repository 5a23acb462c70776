"""The promising candidate: the highest reward among whole, judged answers; what is made of it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from crashing import RUN, loop, quick_folder, small_config, stand_ins, whole, write_prompts

from examples import CANDIDATE, CRITIQUE, REWARD
from lpfloop.loop.daemon.planning import planned
from lpfloop.loop.data.prompts import load_prompts
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.stages.refine import promising
from lpfloop.stores.frames import frame_rows
from lpfloop.stores.records import AspectRating, Candidate, Critique


def candidate(number, **changes):
    return replace(CANDIDATE, candidate_id=f"cand-{number}", **changes)


def rewarded(**scores):
    return {k: replace(REWARD, candidate_id=k, score=v) for k, v in scores.items()}


def judged(*candidates, rating=1, status="scored"):
    aspects = (AspectRating(name="Readability", rating=rating, comment=""),)
    return {
        c.candidate_id: replace(
            CRITIQUE, candidate_id=c.candidate_id, aspects=aspects, status=status
        )
        for c in candidates
    }


def test_the_highest_reward_wins_whatever_the_critique_says():
    a, b = candidate(1), candidate(2)
    critiques = judged(a, rating=1) | judged(b, rating=-1)
    rewards = {"cand-1": 0.1, "cand-2": 0.9}
    assert promising([a, b], rewarded(**rewards), critiques) == [b]


def test_each_prompt_has_its_own():
    a, b = candidate(1), candidate(2, prompt_id="prompt-2")
    assert promising([b, a], {}, judged(a, b)) == [b, a]


def test_truncated_empty_and_unread_candidates_take_no_part():
    cut = candidate(1, finish_reason="length")
    empty = candidate(2, text=" ")
    unread = candidate(3)
    critiques = judged(cut, empty) | judged(unread, status="no_dictionary")
    rewards = rewarded(**{"cand-1": 1.0, "cand-2": 1.0, "cand-3": 1.0})
    assert promising([cut, empty, unread], rewards, critiques) == []


def test_without_rewards_the_mean_rating_stands_in():
    a, b = candidate(1), candidate(2)
    critiques = judged(a, rating=-1) | judged(b, rating=0)
    assert promising([a, b], {}, critiques) == [b]


# refining failures only


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Path]:
    with quick_folder(tmp_path) as folder, stand_ins(folder):
        yield folder


def refinements(lake: Path, refine: str) -> dict[str, Candidate]:
    """The refinements of a run's first iteration, by id."""
    limits = ("iterations=1", "recipe.m=2", "prompts.per_iteration=12")
    config = small_config(write_prompts(lake, 24), *limits, f"recipe.refine={refine}")
    loop(lake, config=config, name=refine)
    assert whole(lake, refine).owed == []
    run = open_run(lake, refine)
    made = frame_rows(Candidate, run.scan("candidates", iteration=1).collect())
    run.close()
    return {row.candidate_id: row for row in made if row.kind == "refinement"}


def reflected(lake: Path, name: str) -> dict[str, Critique]:
    run = open_run(lake, name)
    rows = frame_rows(Critique, run.scan("critiques").collect())
    run.close()
    return {row.critique_id: row for row in rows}


def test_failures_alone_are_refined_and_as_they_would_be_among_all(lake: Path) -> None:
    every, failures = (refinements(lake, which) for which in ("all", "failures"))
    critiques = reflected(lake, "all")
    faulted = {k: r for k, r in every.items() if not critiques[str(r.critique_id)].positive}
    assert 0 < len(faulted) < len(every)
    assert failures == faulted


def test_a_plan_says_how_many_refinements_there_are_at_most(lake: Path) -> None:
    def calls(refine: str) -> dict[str, int]:
        limits = ("iterations=1", "recipe.m=2", "prompts.per_iteration=12")
        config = small_config(write_prompts(lake, 24), *limits, f"recipe.refine={refine}")
        prompts = load_prompts(config.prompts, seed=config.seed)
        return {s.stage: s.calls for s in planned(config, prompts, lake / RUN).stages}

    assert calls("failures") == calls("all")
    assert calls("failures")["refine"] == 24
