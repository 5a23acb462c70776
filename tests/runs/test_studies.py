"""How studies of RLRF read runs, with gains from each seed's M_0; how a study continues."""

from contextlib import closing
from dataclasses import replace

import pytest
from lakes import MadeIteration, write_course
from measures import MARGINS
from rlrf_grpo import STUDY
from rows import CANDIDATE, PAIR, STATISTIC

from lpfloop.configs.load import resolve_config
from lpfloop.loop.studies.claims import HOLDS
from lpfloop.loop.studies.run_study import StudyRequest, run_study
from lpfloop.loop.studies.study import Evidence, Study, StudyArm
from lpfloop.stores.journal import Journal
from lpfloop.stores.keys import canonical_json
from lpfloop.stores.lake import RunWriter, run_folder
from lpfloop.stores.records import Candidate, Pair, Statistic

SEEDS = (1, 2, 3)
SETTINGS = {"training": {"dpo": {"beta": 0.1}}}


def add(lake, name, stage, tables):
    """Commit one more unit of a written run."""
    with closing(RunWriter(Journal(run_folder(lake, name)))) as writer:
        writer.journal.plan(1, stage, stage, lambda: [stage])
        writer.commit(stage, tables, {})
        writer.flush()


def write_against(lake, began, own, other):
    """Write RLRF's and GRPO's runs: by seed, M_0's accuracy and the accuracy at 1,000 tokens."""
    for seed, first, *ends in zip(SEEDS, began, own, other, strict=True):
        for arm, end in zip(("course-rlrf", "course-grpo"), ends, strict=True):
            name = f"study-{arm}-{seed}"
            made = [MadeIteration(policy_tokens=1000, right=end)]
            write_course(lake, name, made, initial=first, config={"seed": seed, **SETTINGS})
        name = f"study-course-rlrf-{seed}"
        drawn = [replace(CANDIDATE, iteration=1), replace(CANDIDATE, candidate_id="cand-2")]
        add(lake, name, "sample:more", {Candidate: drawn})
        add(lake, name, "pair", {Pair: [PAIR]})
        add(lake, name, "steps", {Statistic: [replace(STATISTIC, metric=MARGINS, value=0.02)]})


def test_gains_count_from_m0_of_the_seed(tmp_path):
    write_against(tmp_path, (0.4, 0.6, 0.7), (0.6, 0.8, 0.9), (0.5, 0.7, 0.8))
    score, tokens = STUDY.find(Evidence(lake=tmp_path, seeds=SEEDS)).claims
    assert score.estimate.by_seed == pytest.approx((10.0, 10.0, 10.0))
    assert score.verdict == HOLDS
    # Of 5 points the first needs a quarter of its tokens, the other one half.
    assert tokens.estimate.by_seed == pytest.approx((50.0, 50.0, 50.0))
    assert (tokens.estimate.value, tokens.verdict) == (pytest.approx(50.0), HOLDS)


def write_end(job, end="done: 1 iterations"):
    """Write a job's run with this end."""
    facts = {"config": canonical_json(resolve_config(job.config))}
    with closing(Journal.create(run_folder(job.lake, job.name), facts)) as journal:
        journal.record("end", end)


def test_resume_stopped_study(tmp_path):
    one = ("iterations=1",)
    first = StudyArm(name="first", recipe="rlrf", settings=one)
    other = StudyArm(name="other", recipe="reward-only", settings=one, fork="first")
    study = Study(name="s", hypothesis="", paper="", arms=(first, other), find=pytest.fail)
    turned = []

    def turn(job):
        turned.append((job.name, job.fork))
        if len(turned) == 3:
            raise KeyboardInterrupt
        write_end(job)

    wanted = StudyRequest(study=study, seeds=(1, 2), lake=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_study(wanted, turn, lambda _: None)
    for _ in range(2):
        assert run_study(wanted, turn, lambda _: None) == []
    assert turned == [
        ("study-first-1", None),
        ("study-other-1", "study-first-1"),
        ("study-first-2", None),
        ("study-first-2", None),
        ("study-other-2", "study-first-2"),
    ]
    # If a run was stopped, the study resumes it.
    turned.clear()
    third = replace(wanted, seeds=(3,))
    run_study(third, lambda job: write_end(job, "Stopped: asked"), lambda _: None)
    run_study(third, lambda job: turned.append(job.name), lambda _: None)
    assert turned == ["study-first-3", "study-other-3"]
