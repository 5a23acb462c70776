"""Grades are listed, shown beside their completion, and named as what made a pair."""

import json
from dataclasses import replace

import pytest
from told import BAD, GOOD, LACKING, PAIRED, made, write_run
from typer.testing import CliRunner

from examples import GRADE, PAIR
from lpfloop.loop.cli.app import app
from lpfloop.loop.lake.trace.find_row import Found
from lpfloop.loop.lake.trace.story import Story
from lpfloop.loop.lake.trace.why import why_pair, why_yield
from lpfloop.stores.records import Candidate, Grade, Pair, Prompt


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
    grade(GOOD, "overall", 8.5),
    grade(BAD, "overall", 1.0),
]
BINARISED = replace(
    PAIR,
    pair_id="pair-graded",
    prompt_id=PAIRED.prompt_id,
    chosen_id=GOOD.candidate_id,
    rejected_id=BAD.candidate_id,
    rule="mean-vs-random",
    chosen_ratings=(),
    rejected_ratings=(),
    chosen_reward=5.0,
    rejected_reward=1.0,
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    folder = tmp_path_factory.mktemp("grades")
    rows = {
        Prompt: [PAIRED, LACKING],
        Candidate: [GOOD, BAD],
        Grade: GRADES,
        Pair: [BINARISED],
    }
    write_run(folder, "graded", {1: rows})
    return folder


@pytest.fixture
def call(lake):
    return lambda *words: CliRunner().invoke(app, [*words, "--lake", str(lake)])


def listed(call, *words):
    found = call("grades", "graded", "--json", *words)
    assert found.exit_code == 0, found.output
    return [(row["candidate_id"], row["aspect"], row["rating"]) for row in json.loads(found.stdout)]


def test_grades_are_listed_by_aspect_and_rating(call):
    assert len(listed(call)) == 6
    assert listed(call, "--aspect", "truthfulness", "--rating", "1") == [
        (BAD.candidate_id, "truthfulness", 1.0)
    ]
    assert listed(call, "--text", "is wrong") == [(BAD.candidate_id, "truthfulness", 1.0)]
    assert [row[2] for row in listed(call, "--aspect", "overall", "--sort", "-rating")] == [8.5, 1]


def test_what_does_not_apply_is_not_unscored(call):
    assert listed(call, "--unscored") == [(BAD.candidate_id, "honesty", None)]


def test_an_aspect_that_no_grade_has_is_refused(call):
    refused = call("grades", "graded", "--aspect", "Factuality")
    assert refused.exit_code == 2
    assert "there is no aspect 'Factuality' here; there are: helpfulness" in refused.output


def test_sql_knows_grades(call):
    query = "select aspect, count(rating) n from grades group by aspect order by aspect"
    found = call("sql", query, "--json")
    assert json.loads(found.stdout) == [
        {"aspect": "honesty", "n": 0},
        {"aspect": "overall", "n": 2},
        {"aspect": "truthfulness", "n": 2},
    ]


@pytest.mark.parametrize("asked", [GOOD.candidate_id, "grade-truth", PAIRED.prompt_id])
def test_a_completion_is_shown_with_its_grades(call, asked):
    if asked == "grade-truth":
        asked = GRADES[0].grade_id
    told = " ".join(call("show", asked).output.split())
    assert "truthfulness 5 of 5" in told
    assert "truthfulness 1 of 5, types 1, 3" in told
    assert "honesty does not apply" in told
    assert "honesty unscored: missing" in told
    assert "overall 8.5 of 10" in told
    assert "It is wrong." in told


def test_lineage_leads_over_grades_to_a_pair(call):
    told = call("lineage", "pair-graded", "--json")
    assert told.exit_code == 0, told.output
    assert "grade-truth-good" in told.stdout


def story(**rows):
    judged = ("critiques", "rewards", "preferences", "breakdowns", "claims", "scores")
    kinds = (*judged, "demonstrations", "checkpoints")
    lists = {name: [] for name in (*kinds, "pairs", "grades", "yields", "derived", "candidates")}
    asked = Found(kind="prompt", id=PAIRED.prompt_id, prompt_id=PAIRED.prompt_id)
    return Story(run="r", asked=asked, prompt=PAIRED, **{**lists, **rows})


def test_a_pair_is_told_by_the_ratings_that_decided():
    told = why_pair(story(grades=GRADES), BINARISED)
    assert told == (
        "rule mean-vs-random; chosen for the best score, truthfulness 5 of 5, honesty does not "
        "apply, score 5.000; rejected at random from those with a lower one, "
        "truthfulness 1 of 5, honesty unscored: missing, score 1.000"
    )
    overall = replace(BINARISED, rule="overall", chosen_reward=8.5)
    assert "chosen for the best score, overall 8.5 of 10, score 8.500" in why_pair(
        story(grades=GRADES), overall
    )
    assert "rejected as the worst" in why_pair(story(), replace(BINARISED, rule="best-vs-worst"))


@pytest.mark.parametrize(
    ("outcome", "why"),
    [
        ("none_rated", "some of its grades could not be read"),
        ("tied", "all candidates with a score have the same"),
        ("no_negative", "only one candidate has a score"),
    ],
)
def test_a_prompt_without_a_pair_is_told_why(outcome, why):
    row = made(PAIRED, outcome, rule="mean-vs-random")
    assert why in why_yield(story(candidates=[GOOD, BAD], grades=GRADES), row)
