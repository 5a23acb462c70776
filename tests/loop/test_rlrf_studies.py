"""How studies of RLRF read runs: gains from each seed's own M_0, critics by the same answers."""

from contextlib import closing
from dataclasses import replace

import pytest
from equal_runs import PROMPTS, Made, write_course

from examples import CANDIDATE, PAIR, SCORE, STATISTIC
from lpfloop.loop.lake.query.figures import NotMeasuredError
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.studies import STUDIES
from lpfloop.loop.studies.claims import FAILS, HOLDS, UNDECIDED, UNKNOWN
from lpfloop.loop.studies.evidence import Evidence
from lpfloop.loop.studies.measures import MARGINS, critic_auroc, reward_auroc, right_drafts
from lpfloop.stores.journal import Journal
from lpfloop.stores.lake import RunWriter, run_folder
from lpfloop.stores.records import Candidate, Pair, Score, Statistic

SEEDS = (1, 2, 3)
SETTINGS = {"training": {"dpo": {"beta": 0.1}}}


def add(lake, name, stage, tables):
    """Commit one more unit of a run that was written."""
    with closing(RunWriter(Journal(run_folder(lake, name)))) as writer:
        writer.journal.plan(1, stage, stage, lambda: [stage])
        writer.commit(stage, tables, {})
        writer.flush()


def write_against(lake, began, own, other):
    """Write RLRF's and GRPO's runs: by seed M_0's share, and the share after 1,000 tokens."""
    for seed, first, *ends in zip(SEEDS, began, own, other, strict=True):
        for arm, end in zip(("course-rlrf", "course-grpo"), ends, strict=True):
            name = f"study-{arm}-{seed}"
            made = [Made(policy_tokens=1000, right=end)]
            write_course(lake, name, made, initial=first, config={"seed": seed, **SETTINGS})
        name = f"study-course-rlrf-{seed}"
        drawn = [replace(CANDIDATE, iteration=1), replace(CANDIDATE, candidate_id="cand-2")]
        add(lake, name, "sample:more", {Candidate: drawn})
        add(lake, name, "pair", {Pair: [PAIR]})
        add(lake, name, "steps", {Statistic: [replace(STATISTIC, metric=MARGINS, value=0.02)]})


def found(lake):
    return STUDIES["rlrf-grpo"].find(Evidence(lake=lake, seeds=SEEDS))


def test_what_is_to_be_gained_counts_from_the_m_0_of_the_same_seed(tmp_path):
    write_against(tmp_path, (0.4, 0.6, 0.7), (0.6, 0.8, 0.9), (0.5, 0.7, 0.8))
    score, tokens = found(tmp_path).claims
    assert score.estimate.by_seed == pytest.approx((10.0, 10.0, 10.0))
    assert score.verdict == HOLDS
    # Of 5 points the first needs a quarter of its way, the other one half.
    assert tokens.estimate.by_seed == pytest.approx((50.0, 50.0, 50.0))
    assert (tokens.estimate.value, tokens.verdict) == (pytest.approx(50.0), HOLDS)
    assert "5.0 points over M_0 of the same seed" in " ".join(found(tmp_path).notes)


def test_a_run_that_never_rose_leaves_the_tokens_undecided(tmp_path):
    write_against(tmp_path, (0.4, 0.6, 0.7), (0.4, 0.5, 0.6), (0.6, 0.8, 0.9))
    score, tokens = found(tmp_path).claims
    assert score.verdict == FAILS
    assert (tokens.verdict, tokens.estimate.told()) == (UNDECIDED, UNKNOWN)
    assert found(tmp_path).verdict == FAILS


def scores(candidate, *, rating, right, reward):
    """Return what is stored of a draft: a rating, whether the critic agrees, its reward."""
    own = {"rating:Factuality": rating, "critic_agreement": float((rating == 1) == right)}
    values = {**own, "reward": reward}
    return [
        replace(
            SCORE,
            iteration=1,
            benchmark="drafts",
            metric=metric,
            value=value,
            candidate_id=candidate.candidate_id,
            prompt_id=candidate.prompt_id,
        )
        for metric, value in values.items()
    ]


def write_drafts(lake, kinds):
    """Write a run with drafts of these kinds: two right, two wrong of each, rated and rewarded."""
    write_course(lake, "a", [Made(policy_tokens=10, right=0.5)])
    drafts, told = list[Candidate](), list[Score]()
    for kind, rated in kinds.items():
        for number, (right, rating, reward) in enumerate(rated):
            drafts.append(
                replace(
                    CANDIDATE,
                    candidate_id=f"{kind}-{number}",
                    prompt_id=f"prompt-{number % PROMPTS}",
                    iteration=1,
                    kind=kind,
                )
            )
            told += scores(drafts[-1], rating=rating, right=right, reward=reward)
    add(lake, "a", "sample:more", {Candidate: drafts})
    add(lake, "a", "measure:drafts", {Score: told})


def test_critics_are_compared_by_samples_and_not_by_what_was_written_for_them(tmp_path):
    samples = [(True, 1, 0.1), (True, 0, 0.9), (False, 0, 0.5), (False, -1, 0.2)]
    misjudged = [(True, -1, 0.0), (False, 1, 1.0)]
    write_drafts(tmp_path, {"sample": samples, "refinement": misjudged})
    with closing(open_run(tmp_path, "a")) as run:
        # Of four pairs of a right and a wrong sample three are rated as they are, one alike.
        assert critic_auroc(run) == pytest.approx(87.5)
        assert critic_auroc(run, "math") == pytest.approx(87.5)
        assert reward_auroc(run) == pytest.approx(50.0)
        assert right_drafts(run, "sample") == right_drafts(run, "refinement") == 50.0
        with pytest.raises(NotMeasuredError, match="no AUROC of facts"):
            critic_auroc(run, "facts")


def test_samples_that_are_all_right_have_no_area(tmp_path):
    write_drafts(tmp_path, {"sample": [(True, 1, 0.5)], "refinement": [(False, 0, 0.1)]})
    with closing(open_run(tmp_path, "a")) as run, pytest.raises(NotMeasuredError, match="all rig"):
        critic_auroc(run)
