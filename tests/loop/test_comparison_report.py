"""`lpfloop compare --report`: one page on several runs, who is better, or why they cannot be."""

from dataclasses import replace

import pytest
import told
from typer.testing import CliRunner

from examples import CHECKPOINT
from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.evaluation.compare_runs import results
from lpfloop.loop.evaluation.pairwise_verdicts import apart, pairwise_verdicts
from lpfloop.stores.records import Candidate, Checkpoint, Evaluation, Prompt, Score

PROMPTS = 200
WORSE, BETTER, ELSEWHERE = "worse", "better", "elsewhere"
HOSTILE = "<script>alert(1)</script>"


def measured(lake, name, share, prefix="p"):
    """Write a run whose M_1 is right for this share of prompts, as no M_0 is."""
    asked = [
        replace(told.prompt(n, split="held-out"), prompt_id=f"{prefix}{n}") for n in range(PROMPTS)
    ]
    tables = {0: {Prompt: asked, Checkpoint: [replace(CHECKPOINT, checkpoint_id=told.M0)]}, 1: {}}
    for iteration, right in ((0, 0.0), (1, share)):
        values = [float(n < right * PROMPTS) for n in range(PROMPTS)]
        rows = answers(iteration, values, asked, name)
        tables[iteration] |= rows
    made = replace(CHECKPOINT, checkpoint_id=name * 8, parent_id=told.M0, iteration=1)
    tables[1][Checkpoint] = [made]
    told.write_run(lake, name, tables, recipe=f"dpo{HOSTILE}")


def answers(iteration, values, asked, name):
    model = told.M0 if iteration == 0 else name * 8
    greedy = [
        told.candidate(f"{name}-{iteration}-{n}", x, "Yes.", kind="greedy", iteration=iteration)
        for n, x in enumerate(asked)
    ]
    scores = [
        Score(
            iteration=iteration,
            checkpoint_id=model,
            benchmark="held-out",
            metric="math_accuracy",
            prompt_id=answer.prompt_id,
            candidate_id=answer.candidate_id,
            value=value,
        )
        for answer, value in zip(greedy, values, strict=True)
    ]
    number = Evaluation(
        iteration=iteration,
        checkpoint_id=model,
        benchmark="held-out",
        metric="math_accuracy",
        value=sum(values) / PROMPTS,
        stderr=None,
        n=PROMPTS,
    )
    return {Candidate: greedy, Score: scores, Evaluation: [number]}


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared") / "lake"
    measured(folder, WORSE, 0.2)
    measured(folder, BETTER, 0.6)
    measured(folder, ELSEWHERE, 0.5, prefix="q")
    return folder


def call(lake, *arguments):
    return CliRunner().invoke(app, ["compare", *map(str, arguments), "--lake", str(lake)])


def test_each_two_runs_are_compared_at_a_shared_error_rate(lake):
    found = results(lake, [WORSE, BETTER, ELSEWHERE])
    verdicts = {
        (each.before.runs[0], each.after.runs[0]): each
        for each in pairwise_verdicts(found)
        if each.before.method != "M_0"
    }
    assert set(verdicts) == {(WORSE, BETTER)}
    one = verdicts[WORSE, BETTER]
    assert (one.metric, one.decision.answer, one.decision.n) == ("verified", "better", PROMPTS)
    assert one.decision.difference == pytest.approx(0.4)
    (alone,) = pairwise_verdicts([one.before, one.after])
    assert one.decision.low < alone.decision.low < 0.4


def test_the_page_has_the_table_the_verdicts_and_a_line_for_each_run(lake, tmp_path):
    page = tmp_path / "page.html"
    done = call(lake, WORSE, BETTER, "--report", page)
    assert done.exit_code == Exit.DONE, done.output
    assert '"verified":0.6' in done.output
    text = page.read_text()
    for said in ("Verified %", "Who is better", "20.0 → 60.0 %, +40.0", ">better<", BETTER):
        assert said in text
    assert HOSTILE not in text
    assert "<script" not in text
    assert text.count("<svg") > 0
    assert f"compare {WORSE} {BETTER} --report FILE" in text


@pytest.mark.parametrize(
    ("names", "told_why"),
    [
        ((WORSE, ELSEWHERE), f"{WORSE}, {ELSEWHERE} share nothing that could be compared"),
        ((WORSE,), f"`lpfloop report {WORSE}` is that of one"),
        ((WORSE, WORSE), f"`lpfloop report {WORSE}` is that of one"),
    ],
)
def test_runs_that_share_nothing_are_refused_in_one_sentence(lake, tmp_path, names, told_why):
    page = tmp_path / "page.html"
    done = call(lake, *names, "--report", page)
    assert done.exit_code == Exit.BAD_INPUT
    assert told_why in " ".join(done.output.split())
    assert not page.exists()


def test_a_run_that_shares_nothing_with_the_others_is_named(lake, tmp_path):
    page = tmp_path / "page.html"
    done = call(lake, WORSE, BETTER, ELSEWHERE, "--report", page)
    assert done.exit_code == Exit.DONE, done.output
    assert "shares no measured prompt with any other" in page.read_text()
    found = results(lake, [WORSE, BETTER, ELSEWHERE])
    assert {run for result in apart(found) for run in result.runs} <= {ELSEWHERE}


def test_a_place_where_nothing_can_be_written_is_refused_before_any_work(lake, tmp_path):
    for place in (tmp_path, tmp_path / "missing" / "page.html", lake / "page.html"):
        done = call(lake, WORSE, "nosuch", "--report", place)
        assert done.exit_code == Exit.BAD_INPUT
        assert str(place) in "".join(done.output.split("\n"))
        assert "nosuch" not in done.output


def test_a_file_that_is_no_report_is_not_replaced(lake, tmp_path):
    page = tmp_path / "page.html"
    page.write_text("my notes")
    done = call(lake, WORSE, BETTER, "--report", page)
    assert done.exit_code == Exit.BAD_INPUT
    assert page.read_text() == "my notes"
    assert call(lake, WORSE, BETTER, "--report", page, "--force").exit_code == Exit.DONE
    assert call(lake, WORSE, BETTER, "--report", page).exit_code == Exit.DONE
