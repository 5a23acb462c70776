"""Answers that say the same are judged once, cut ones are not graded, and both are told."""

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from turns import rows, turn

from examples import CANDIDATE
from lpfloop.configs.load import load_config, stored_config
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.lake.derive.reparse import reparse
from lpfloop.loop.run.handles import Rows
from lpfloop.loop.run.iteration import Iteration
from lpfloop.loop.run.run import Verb, Work
from lpfloop.loop.stages.critique import critique
from lpfloop.loop.stages.grade import grade, grade_overall
from lpfloop.loop.stages.keep_prompts import keep_prompts
from lpfloop.policies.engines.scripted_engine import ScriptedEngine
from lpfloop.stores.lake import RunReader, run_folder
from lpfloop.stores.records import Candidate

SETTINGS = (
    "policy.engine.kind=scripted",
    "policy.engine.script=scripts:policy",
    "critic.engine.kind=scripted",
    "critic.engine.script=scripts:critic",
    "critic.kind=feedback",
    "reward.model=none",
    "grading.model=tiny",
    "grading.engine.kind=scripted",
    "grading.engine.script=graders:by_figure",
    "prompts.per_iteration=6",
    "prompts.evaluated=4",
    "prompts.deciding=4",
    "assessment.reference=null",
    "assessment.oracle=null",
)
SPARING = (
    "grading.equal_answers=once",
    "grading.cut_answers=unscored",
    "critic.equal_answers=once",
)
TEXTS = ("It is 4.", "It is 7.", " It  is\n4.", "It is 4.")


@pytest.fixture
def asked(monkeypatch) -> list:
    """Every request that a scripted model gets from now on."""
    requests = []
    answer = ScriptedEngine._complete

    def noting(self, request, sampling):
        requests.append(request.messages[-1].content)
        return answer(self, request, sampling)

    monkeypatch.setattr(ScriptedEngine, "_complete", noting)
    return requests


def job(folder: Path, *overrides: str) -> Job:
    config = load_config("tiny", "ultrafeedback-dpo", (*SETTINGS, *overrides), {})
    return Job(config=config, lake=folder, name="a")


def held(it: Iteration, *texts: str, **changes: object) -> Rows[Candidate]:
    """Candidates c0, c1, ... of one prompt, in a stage of their own."""
    prompt = it.prompts().chunks[0][0].prompt_id
    of = [
        replace(CANDIDATE, candidate_id=f"c{n}", prompt_id=prompt, text=text, iteration=1)
        for n, text in enumerate(texts)
    ]
    of = [replace(row, **{k: v[row.candidate_id] for k, v in changes.items()}) for row in of]
    work = Work(verb=Verb("sample"), params=None, upstream=("x",), reads=lambda: [("x",)])
    made = it.run.make(1, "sample", work, lambda _: {Candidate: of})
    return Rows(row_type=Candidate, stages=(made,))


def receipts(folder: Path, name: str) -> dict[str, tuple[int, tuple[str, ...]]]:
    with closing(RunReader(run_folder(folder, "a"))) as run:
        frame = run.scan("receipts").collect()
    of = [row for row in frame.iter_rows(named=True) if row["filter"] == name]
    return {row["outcome"]: (row["count"], tuple(row["examples"])) for row in of}


def test_equal_completions_are_shown_once_and_each_has_a_grade_that_says_so(tmp_path, asked):
    with turn(job(tmp_path, *SPARING)) as it:
        found = rows(it, grade(it, held(it, *TEXTS)))
    assert [question.count("<text ") for question in asked] == [2] * 4
    by_id = {row.grade_id: row for row in found}
    assert len(by_id) == 16
    for row in found:
        assert row.rating == (3 if row.candidate_id == "c1" else 5)
        assert (row.same_as is not None) == (row.candidate_id in ("c2", "c3"))
        if row.same_as is not None:
            first = by_id[row.same_as]
            assert (first.candidate_id, first.text, first.order) == ("c0", row.text, row.order)
    told = receipts(tmp_path, "grade:honesty")
    assert told == {"kept": (2, ("c0", "c1")), "kept: equal to another": (2, ("c2", "c3"))}


def test_if_all_completions_are_equal_one_is_graded_alone(tmp_path, asked):
    with turn(job(tmp_path, *SPARING)) as it:
        found = rows(it, grade(it, held(it, "It is 4.", "It is 4.")))
    assert [question.count("<text ") for question in asked] == [1] * 4
    assert {row.rating for row in found} == {5}


def test_equal_completions_under_other_principles_are_critiqued_apart(tmp_path, asked):
    told = {"c0": "honesty: Admit gaps.", "c1": "honesty: Be sure.", "c2": None, "c3": None}
    with turn(job(tmp_path, *SPARING)) as it:
        found = rows(it, grade_overall(it, held(it, *["It is 4."] * 4, principle=told)))
    assert len(asked) == 3
    assert [row.candidate_id for row in found if row.same_as is not None] == ["c3"]


def test_equal_answers_share_a_critique_and_it_is_read_again_as_it_was(tmp_path, asked):
    guarded = ("guard=true", "critic.engine.script=scripts:exemplary_critic")
    with turn(job(tmp_path, *SPARING, *guarded)) as it:
        keep_prompts(it.run, "prompts", it.prompts().chunks)
        found = rows(it, critique(it, held(it, *TEXTS)))
    assert len(asked) == 2
    assert [row.status for row in found] == ["scored"] * 4
    assert sorted(row.candidate_id for row in found if row.same_as is not None) == ["c2", "c3"]
    assert len({row.critique_id for row in found}) == 4
    with closing(RunReader(run_folder(tmp_path, "a"))) as run:
        told = reparse(run)
    assert told.derived.lineage["found"]["statuses"] == {"scored": 4}


def test_a_cut_completion_is_not_graded_and_the_others_are(tmp_path, asked):
    ends = {"c0": "stop", "c1": "length", "c2": "stop", "c3": "stop"}
    with turn(job(tmp_path, *SPARING)) as it:
        found = rows(it, grade(it, held(it, *TEXTS, finish_reason=ends)))
    assert [question.count("<text ") for question in asked] == [1] * 4
    cut = [row for row in found if row.candidate_id == "c1"]
    assert {(row.rating, row.status, row.attempts) for row in cut} == {(None, "truncated", 0)}
    assert receipts(tmp_path, "grade:honesty")["truncated"] == (1, ("c1",))


def test_where_nothing_is_spared_each_is_asked_about_and_nothing_is_noted(tmp_path, asked):
    ends = {"c0": "stop", "c1": "length", "c2": "stop", "c3": "stop"}
    with turn(job(tmp_path)) as it:
        drafts = held(it, *TEXTS, finish_reason=ends)
        graded, critiqued = rows(it, grade(it, drafts)), rows(it, critique(it, drafts))
    assert [question.count("<text ") for question in asked] == [4] * 4 + [0] * 4
    assert {row.same_as for row in (*graded, *critiqued)} == {None}
    with closing(RunReader(run_folder(tmp_path, "a"))) as run:
        assert run.scan("receipts").collect().is_empty()


def test_new_runs_are_sparing_and_those_begun_before_go_on_as_they_were():
    said = load_config("paper", "ultrafeedback-dpo", (), {})
    sparing = said.grading.equal_answers, said.grading.cut_answers, said.critic.equal_answers
    assert sparing == ("once", "unscored", "once")
    stored = json.loads(said.model_dump_json())
    for section in ("grading", "critic"):
        del stored[section]["equal_answers"]
    del stored["grading"]["cut_answers"]
    before = stored_config(stored, (), {})
    assert before.grading.equal_answers == before.critic.equal_answers == "each"
    assert before.grading.cut_answers == "graded"
