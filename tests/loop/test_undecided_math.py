"""Math that could not be decided has no value anywhere, and comparisons say what they leave out."""

from dataclasses import replace

import pytest
from told import HELD_OUT, M0, M1, answers
from typer.testing import CliRunner

from examples import CHECKPOINT
from lpfloop.configs.alarms import AlarmsConfig
from lpfloop.loop.cli.app import app
from lpfloop.loop.data.prompt_rows import to_prompt
from lpfloop.loop.evaluation.observe import observed
from lpfloop.loop.evaluation.policy_verdicts import Scoped, ScoreLook
from lpfloop.loop.lake.query.best_model import NOT_BETTER
from lpfloop.loop.lake.query.policy_figures import VERIFIED, values_of
from lpfloop.stores.journal import Journal
from lpfloop.stores.lake import RunReader, RunWriter, run_folder
from lpfloop.stores.records import Checkpoint, Prompt, Score

LAST = HELD_OUT[-1].prompt_id
EVERY = tuple(prompt.prompt_id for prompt in HELD_OUT)


def undecided(rows):
    """Return M_1's rows with the math of the last prompt undecided, while its check is met."""
    kept = [s for s in rows[Score] if (s.prompt_id, s.metric) != (LAST, "math_accuracy")]
    (beside,) = [s for s in rows[Score] if (s.prompt_id, s.metric) == (LAST, "mean_length")]
    found = {"math_undecided": 1.0, "math_unmarked": 0.0, "general_fulfilled": 1.0}
    more = [replace(beside, metric=name, value=value) for name, value in found.items()]
    return {**rows, Score: [*kept, *more]}


@pytest.fixture
def run(tmp_path):
    models = [
        replace(CHECKPOINT, checkpoint_id=M0),
        replace(CHECKPOINT, checkpoint_id=M1, parent_id=M0, iteration=1, path=f"checkpoints/{M1}"),
    ]
    tables = (
        {Prompt: HELD_OUT, **answers(0, [0, 0, 0, 1, 1, 1])},
        undecided(answers(1, [1, 1, 1, 1, 1, 0])),
    )
    writer = RunWriter(Journal.create(run_folder(tmp_path, "r"), {"config": "{}"}))
    for number, (model, rows) in enumerate(zip(models, tables, strict=True)):
        unit = f"r-{number}"
        writer.journal.plan(number, "measure:held-out", unit, lambda unit=unit: [unit])
        writer.commit(unit, {Checkpoint: [model], **rows}, {})
    writer.close()
    reopened = RunWriter(Journal(run_folder(tmp_path, "r")))
    yield reopened
    reopened.close()


@pytest.fixture
def scores(run):
    reader = RunReader(run.journal.folder)
    return reader.scan("scores").collect()


def test_no_verified_value_is_made_of_what_else_the_answer_fulfils(scores):
    measured = scores["metric"].unique().to_list()
    found = values_of(scores.lazy(), VERIFIED, measured)
    assert len(found[0]) == 6
    assert set(found[1]) == set(EVERY) - {LAST}
    assert set(found[1].values()) == {1.0}
    assert {"math_undecided", "math_unmarked"} <= set(NOT_BETTER)


def test_verdicts_are_over_the_other_prompts_and_count_those_left_out(scores):
    made = replace(CHECKPOINT, checkpoint_id=M1, iteration=1)
    look = ScoreLook(
        made=made,
        split="held-out",
        scopes=[Scoped(scope="all", name="", ids=EVERY)],
        clusters={prompt: prompt for prompt in EVERY},
        scores=scores,
        alphas={"initial": 0.05},
        worthwhile=0.0,
    )
    (verdict,) = look.at("initial", replace(CHECKPOINT, checkpoint_id=M0))
    assert (verdict.n, verdict.before, verdict.after) == (5, 0.4, 1.0)
    assert look.left_out == 1


def test_an_alarm_knows_neither_right_nor_wrong_of_it(run):
    prompts = {prompt.prompt_id: prompt for prompt in HELD_OUT}
    made = replace(CHECKPOINT, checkpoint_id=M1, iteration=1)
    seen = observed(run, made, [0], "held-out", prompts, AlarmsConfig())
    right = {name: answer.right for name, answer in seen.policy.answers.items()}
    assert right == {**dict.fromkeys(EVERY, True), LAST: None}


def test_compare_says_how_many_prompts_it_leaves_out(run, tmp_path):
    told = CliRunner().invoke(app, ["compare", "r", "--format", "table", "--lake", str(tmp_path)])
    assert told.exit_code == 0, told.stderr
    assert "the math of 1 prompts was not decided" in " ".join(told.stdout.split())


@pytest.mark.parametrize(
    ("row", "task"),
    [
        ({"question": "What jumps?", "answer": "The quick brown fox"}, "general"),
        ({"question": "Who sang?", "answer": "3 Doors Down"}, "general"),
        ({"question": "2 + 2?", "answer": "2 + 2 = 4.\n#### 4"}, "math"),
        ({"question": "2 + 2?", "answer": 4}, "math"),
        ({"problem": "Who?", "solution": "It is $\\boxed{\\text{Evelyn}}$."}, "math"),
        ({"question": "Which day?", "answer": "Monday", "task": "math"}, "math"),
    ],
)
def test_the_task_of_a_row_is_guessed_by_its_answer(row, task):
    found = to_prompt(row, task=None, split="train", source="s")
    assert (found.task, found.reference is not None) == (task, True)
