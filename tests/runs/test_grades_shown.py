"""`lpfloop show` prints grades with their completion."""

from dataclasses import replace

from lakes import BAD, GOOD, LACKING, PAIRED, write_run
from rows import GRADE
from typer.testing import CliRunner

from lpfloop.loop.cli.app import app
from lpfloop.stores.records import Candidate, Grade, Prompt


def grade(of, aspect, rating, **fields):
    return replace(
        GRADE,
        grade_id=f"grade-{aspect[:5]}-{of.candidate_id[5:]}",
        candidate_id=of.candidate_id,
        prompt_id=of.prompt_id,
        aspect=aspect,
        rating=rating,
        types=(),
        type_rationale="",
        **fields,
    )


GRADES = [
    grade(GOOD, "truthfulness", 5.0),
    grade(GOOD, "honesty", None, status="not_applicable", rationale="It states nothing."),
    replace(grade(BAD, "truthfulness", 1.0), types=("1", "3"), type_rationale="It is wrong."),
    grade(BAD, "honesty", None, status="missing", rationale=""),
]


def test_completion_with_its_grades(tmp_path):
    rows = {Prompt: [PAIRED, LACKING], Candidate: [GOOD, BAD], Grade: GRADES}
    write_run(tmp_path, "graded", {1: rows})
    for asked in [GOOD.candidate_id, GRADES[0].grade_id, PAIRED.prompt_id]:
        told = CliRunner().invoke(app, ["show", asked, "--lake", str(tmp_path)])
        text = " ".join(told.output.split())
        assert "truthfulness 5 of 5" in text
        assert "truthfulness 1 of 5, types 1, 3" in text
        assert "honesty does not apply" in text
        assert "honesty unscored: missing" in text
