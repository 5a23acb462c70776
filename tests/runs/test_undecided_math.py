"""Undecided math answers never get a value, and comparisons count them as skipped."""

from dataclasses import asdict, replace

import polars as pl
import pytest
from lakes import HELD_OUT, M0, M1, answers
from rows import CHECKPOINT

from lpfloop.loop.data.prompt_rows import to_prompt
from lpfloop.loop.data.row_fields import Row
from lpfloop.loop.evaluation.policy_verdicts import Scoped, ScoreLook
from lpfloop.loop.lake.query.policy_figures import VERIFIED, values_of
from lpfloop.stores.records import Score

LAST = HELD_OUT[-1].prompt_id
EVERY = tuple(prompt.prompt_id for prompt in HELD_OUT)


def undecided(rows):
    """Return M_1's rows with undecided math in the last prompt, whose check passes."""
    kept = [s for s in rows[Score] if (s.prompt_id, s.metric) != (LAST, "math_accuracy")]
    (beside,) = [s for s in rows[Score] if (s.prompt_id, s.metric) == (LAST, "mean_length")]
    found = {"math_undecided": 1.0, "math_unmarked": 0.0, "general_fulfilled": 1.0}
    more = [replace(beside, metric=name, value=value) for name, value in found.items()]
    return {**rows, Score: [*kept, *more]}


@pytest.fixture
def scores():
    rows = answers(0, [0, 0, 0, 1, 1, 1]), undecided(answers(1, [1, 1, 1, 1, 1, 0]))
    every = [asdict(score) for of_policy in rows for score in of_policy[Score]]
    return pl.DataFrame(every, infer_schema_length=None)


def test_undecided_is_unverified(scores):
    measured = scores["metric"].unique().to_list()
    found = values_of(scores.lazy(), VERIFIED, measured)
    assert len(found[0]) == 6
    assert set(found[1]) == set(EVERY) - {LAST}
    assert set(found[1].values()) == {1.0}


def test_verdicts_leave_it_out(scores):
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


def test_task_is_guessed_by_answer():
    for row, task in [
        ({"question": "Who sang?", "answer": "3 Doors Down"}, "general"),
        ({"question": "2 + 2?", "answer": "2 + 2 = 4.\n#### 4"}, "math"),
        ({"problem": "Who?", "solution": "It is $\\boxed{\\text{Evelyn}}$."}, "math"),
        ({"question": "Which day?", "answer": "Monday", "task": "math"}, "math"),
    ]:
        found = to_prompt(Row(row), task=None, split="train", source="s")
        assert (found.task, found.reference is not None) == (task, True)
