"""`lpfloop compare --report`: one page on several runs: the best one, or why none is."""

from dataclasses import replace

import lakes
import pytest
from rows import CHECKPOINT
from typer.testing import CliRunner

from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.evaluation.compare_runs import results
from lpfloop.loop.evaluation.pairwise_verdicts import pairwise_verdicts
from lpfloop.stores.records import Candidate, Checkpoint, Evaluation, Prompt, Score

PROMPTS = 200
WORSE, BETTER, ELSEWHERE = "worse", "better", "elsewhere"


def measured(lake, name, share, prefix="p"):
    """Write a run whose M_1 solves this share of prompts, and whose M_0 solves none."""
    asked = [
        replace(lakes.prompt(n, split="held-out"), prompt_id=f"{prefix}{n}") for n in range(PROMPTS)
    ]
    tables = {0: {Prompt: asked, Checkpoint: [replace(CHECKPOINT, checkpoint_id=lakes.M0)]}, 1: {}}
    for iteration, right in ((0, 0.0), (1, share)):
        values = [float(n < right * PROMPTS) for n in range(PROMPTS)]
        tables[iteration] |= answers(iteration, values, asked, name)
    made = replace(CHECKPOINT, checkpoint_id=name * 8, parent_id=lakes.M0, iteration=1)
    tables[1][Checkpoint] = [made]
    lakes.write_run(lake, name, tables, recipe="dpo<script>alert(1)</script>")


def answers(iteration, values, asked, name):
    model = lakes.M0 if iteration == 0 else name * 8
    greedy = [
        lakes.candidate(f"{name}-{iteration}-{n}", x, "Yes.", kind="greedy", iteration=iteration)
        for n, x in enumerate(asked)
    ]
    about = {"iteration": iteration, "checkpoint_id": model, "benchmark": "held-out"}
    about |= {"metric": "math_accuracy"}
    scores = [
        Score(prompt_id=answer.prompt_id, candidate_id=answer.candidate_id, value=value, **about)
        for answer, value in zip(greedy, values, strict=True)
    ]
    number = Evaluation(value=sum(values) / PROMPTS, stderr=None, n=PROMPTS, **about)
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


def test_two_runs_at_a_shared_error_rate(lake):
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


def test_page_has_verdicts(lake, tmp_path):
    page = tmp_path / "page.html"
    done = call(lake, WORSE, BETTER, "--report", page)
    assert done.exit_code == Exit.DONE, done.output
    assert '"verified":0.6' in done.output
    text = page.read_text()
    assert all(said in text for said in ("20.0 → 60.0", ">better<", "data:image/svg+xml"))
    assert "<script" not in text
    page.unlink()
    assert call(lake, WORSE, ELSEWHERE, "--report", page).exit_code == Exit.BAD_INPUT
    assert not page.exists()
