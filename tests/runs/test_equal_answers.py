"""Equal answers are judged once, cut answers are not graded, and the log reports both."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

from rows import CANDIDATE
from world import handle_rows, turn

from lpfloop.configs.load import load_config
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.lake.derive.reparse import reparse
from lpfloop.loop.run.handles import Rows
from lpfloop.loop.run.iteration import Iteration
from lpfloop.loop.run.run import Verb, Work
from lpfloop.loop.stages.critique import critique
from lpfloop.loop.stages.grade import grade
from lpfloop.loop.stages.select_prompts import keep_prompts
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
    "grading.engine.script=judges:by_figure",
    "prompts.per_iteration=6",
    "prompts.max_test=4",
    "prompts.max_dev=4",
    "assessment.reference=null",
    "assessment.oracle=null",
)
SPARING = (
    "grading.equal_answers=once",
    "grading.cut_answers=unscored",
    "critic.equal_answers=once",
)
TEXTS = ("It is 4.", "It is 7.", " It  is\n4.", "It is 4.")


def questions(asked) -> list[str]:
    return [request.messages[-1].content for request, _ in asked]


def job(folder: Path, *overrides: str) -> Job:
    config = load_config("tiny", "ultrafeedback-dpo", (*SETTINGS, *overrides), {})
    return Job(config=config, lake=folder, name="a")


def held(it: Iteration, *texts: str, **changes: object) -> Rows[Candidate]:
    """Candidates c0, c1, ... of one prompt, in a separate stage."""
    prompt = it.prompts().chunks[0][0].prompt_id
    of = [
        replace(CANDIDATE, candidate_id=f"c{n}", prompt_id=prompt, text=text, iteration=1)
        for n, text in enumerate(texts)
    ]
    of = [replace(row, **{k: v[row.candidate_id] for k, v in changes.items()}) for row in of]
    work = Work(verb=Verb("sample"), params=None, upstream=("x",), reads=lambda: [("x",)])
    made = it.run.make(1, "sample", work, lambda _: {Candidate: of})
    return Rows(row_type=Candidate, stages=(made,))


def filter_counts(folder: Path, name: str) -> dict[str, tuple[int, tuple[str, ...]]]:
    with closing(RunReader(run_folder(folder, "a"))) as run:
        frame = run.scan("filter_counts").collect()
    of = [row for row in frame.iter_rows(named=True) if row["filter"] == name]
    return {row["outcome"]: (row["count"], tuple(row["examples"])) for row in of}


def test_equal_completions_are_graded_once(tmp_path, asked):
    with turn(job(tmp_path, *SPARING)) as it:
        found = handle_rows(it, grade(it, held(it, *TEXTS)))
    assert [question.count("<text ") for question in questions(asked)] == [2] * 4
    by_id = {row.grade_id: row for row in found}
    assert len(by_id) == 16
    for row in found:
        assert row.rating == (3 if row.candidate_id == "c1" else 5)
        assert (row.same_as is not None) == (row.candidate_id in ("c2", "c3"))
        if row.same_as is not None:
            first = by_id[row.same_as]
            assert (first.candidate_id, first.text, first.order) == ("c0", row.text, row.order)
    told = filter_counts(tmp_path, "grade:honesty")
    assert told == {"kept": (2, ("c0", "c1")), "kept: equal to another": (2, ("c2", "c3"))}


def test_equal_answers_share_a_critique(tmp_path, asked):
    guarded = ("injection_guard=true", "critic.engine.script=scripts:exemplary_critic")
    with turn(job(tmp_path, *SPARING, *guarded)) as it:
        keep_prompts(it.run, "prompts", it.prompts().chunks)
        found = handle_rows(it, critique(it, held(it, *TEXTS)))
    assert len(asked) == 2
    assert [row.status for row in found] == ["scored"] * 4
    assert sorted(row.candidate_id for row in found if row.same_as is not None) == ["c2", "c3"]
    assert len({row.critique_id for row in found}) == 4
    with closing(RunReader(run_folder(tmp_path, "a"))) as run:
        told = reparse(run)
    assert told.derived.lineage["found"]["statuses"] == {"scored": 4}


def test_cut_completion_is_not_graded(tmp_path, asked):
    ends = {"c0": "stop", "c1": "length", "c2": "stop", "c3": "stop"}
    with turn(job(tmp_path, *SPARING)) as it:
        found = handle_rows(it, grade(it, held(it, *TEXTS, finish_reason=ends)))
    assert [question.count("<text ") for question in questions(asked)] == [1] * 4
    cut = [row for row in found if row.candidate_id == "c1"]
    assert {(row.rating, row.status, row.attempts) for row in cut} == {(None, "truncated", 0)}
    assert filter_counts(tmp_path, "grade:honesty")["truncated"] == (1, ("c1",))
