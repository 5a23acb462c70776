"""A grader rates candidates in four aspects and as a whole; unreadable replies have no number."""

from collections import Counter
from pathlib import Path

import pytest
from judges import rating_of
from world import handle_rows, turn

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError
from lpfloop.critics.grading.grade_reply import FINE_GRAINED
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.run.iteration import Iteration
from lpfloop.loop.stages.grade import grade, grade_overall
from lpfloop.loop.stages.sample import sample
from lpfloop.stores.records import SCORED, Candidate, Grade

SETTINGS = (
    "policy.engine.kind=scripted",
    "policy.engine.script=scripts:policy",
    "critic.engine.kind=scripted",
    "critic.engine.script=scripts:critic",
    "reward.model=none",
    "grading.model=tiny",
    "grading.engine.kind=scripted",
    "prompts.per_iteration=30",
    "prompts.max_test=6",
    "prompts.max_dev=6",
    "prompts.chunk=12",
    "assessment.reference=null",
    "assessment.oracle=null",
)


def job(folder: Path, *overrides: str, script: str = "by_figure", name: str = "a") -> Job:
    settings = (*SETTINGS, f"grading.engine.script=judges:{script}", *overrides)
    config = load_config("tiny", "ultrafeedback-dpo", settings, {})
    return Job(config=config, lake=folder, name=name)


def graded(it: Iteration, n: int = 4) -> tuple[dict[str, Candidate], list[Grade]]:
    drafts = sample(it, it.prompts(), n=n)
    found = handle_rows(it, grade(it, drafts))
    return {c.candidate_id: c for c in handle_rows(it, drafts)}, found


def questions(asked: list) -> list:
    """Return the requests of judges, with their sampling."""
    return [(request, how) for request, how in asked if request.request_id.startswith("ask-")]


# four aspects


def test_one_question_an_aspect(tmp_path, asked):
    with turn(job(tmp_path)) as it:
        texts, found = graded(it)
    assert len(questions(asked)) == 30 * 4
    assert {request.messages[-1].content.count("<text ") for request, _ in questions(asked)} == {4}
    assert Counter(row.aspect for row in found) == dict.fromkeys(FINE_GRAINED, 120)
    assert len({row.grade_id for row in found}) == len(found)
    for row in found:
        assert (row.status, row.rating) == (SCORED, rating_of(texts[row.candidate_id].text, 5))
        assert row.rationale == "The figure says so."
        assert row.attempts == 1


def test_aspect_that_does_not_apply(tmp_path, asked):
    with turn(job(tmp_path, script="shy_grader")) as it:
        _, found = graded(it)
        unscored = sum(stage.totals.get("unscored", 0) for stage in it.run.store.journal.stages())
    honest = [row for row in found if row.aspect == "honesty"]
    assert {(row.rating, row.status) for row in honest} == {(None, "not_applicable")}
    assert {row.status for row in found if row.aspect != "honesty"} == {SCORED}
    assert len(questions(asked)) == 30 * 4
    assert unscored == 0


# critiques


def test_overall_critique(tmp_path, asked):
    with turn(job(tmp_path)) as it:
        drafts = sample(it, it.prompts(), n=2)
        found = handle_rows(it, grade_overall(it, drafts))
        texts = {c.candidate_id: c.text for c in handle_rows(it, drafts)}
    assert len(questions(asked)) == len(found) == 60
    for row in found:
        assert (row.aspect, row.rating) == ("overall", rating_of(texts[row.candidate_id], 10))
        assert (row.rationale, row.order) == ("Mind the figure.", 0)


# unreadable replies


def test_unread_reply_retried(tmp_path, asked):
    with turn(job(tmp_path, "grading.attempts=6", script="unsure_grader")) as it:
        texts, found = graded(it)
        retries = sum(stage.totals.get("retries", 0) for stage in it.run.store.journal.stages())
    assert retries == len(questions(asked)) - 120 > 20
    assert len({request.seed for request, _ in questions(asked)}) == len(questions(asked))
    assert {s.temperature for _, s in questions(asked)} == {0.0, 0.7}
    again = Counter(row.attempts for row in found)
    assert again[1] > again[2] > 0
    assert sum(row.status != SCORED for row in found) <= 4 * 8
    for row in found:
        if row.status == SCORED:
            assert row.rating == rating_of(texts[row.candidate_id].text, 5)


def test_unread_share_is_null(tmp_path):
    with turn(job(tmp_path, script="silent")) as it:
        _, found = graded(it)
        totals = [stage.totals for stage in it.run.store.journal.stages()]
    assert {(row.rating, row.status, row.attempts) for row in found} == {(None, "missing", 3)}
    assert all(row.text == "That is hard to say." for row in found)
    assert sum(total.get("unscored", 0) for total in totals) == len(found)


# stops, changes, refusals


def test_run_without_grader(tmp_path):
    wanted = job(tmp_path, "grading.templates=nowhere")
    with pytest.raises(ConfigError, match="shipped sets are"), turn(wanted):
        pass
    assert not (tmp_path / "runs").exists()
