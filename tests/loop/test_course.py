"""How the policies of a run stand: which is the best, and where the next iteration begins."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import CHECKPOINT, VERDICT
from lpfloop.configs.verdict import VerdictConfig
from lpfloop.loop.evaluation.course import Course, standing_after, told
from lpfloop.stores.records import Against, Checkpoint, PolicyVerdict

TASKS = ("math", "facts")


def policy(number: int) -> Checkpoint:
    return replace(CHECKPOINT, checkpoint_id=f"c{number}", iteration=number)


def found(
    made: Checkpoint, course: Course, levels: dict[int, dict[str, float]]
) -> list[PolicyVerdict]:
    """Return the verdicts on a policy where each policy has these levels by task."""
    rows = list[PolicyVerdict]()
    for against, other in course.compared.items():
        rows += _beside(made, against, other, levels)
    return rows


def _beside(
    made: Checkpoint, against: Against, other: Checkpoint, levels: dict[int, dict[str, float]]
) -> list[PolicyVerdict]:
    before, after = levels[other.iteration], levels[made.iteration]
    by_name = {name: (before[name], after[name]) for name in TASKS}
    means = tuple(sum(side) / len(TASKS) for side in zip(*by_name.values(), strict=True))
    return [
        replace(
            VERDICT,
            iteration=made.iteration,
            checkpoint_id=made.checkpoint_id,
            against=against,
            other_id=other.checkpoint_id,
            other_iteration=other.iteration,
            scope="task" if name else "all",
            name=name,
            before=old,
            after=new,
            difference=new - old,
        )
        for name, (old, new) in {"": means, **by_name}.items()
    ]


def run_through(levels: list[dict[str, float]], config: VerdictConfig) -> list[Course]:
    """Return the course of a run after each policy, whatever it was trained from."""
    numbered = dict(enumerate(levels))
    course = Course.of(policy(0))
    courses = [course]
    for number in range(1, len(levels)):
        made = policy(number)
        standing = standing_after(course, made, found(made, course, numbered), config)
        course = course.having(made, standing)
        courses.append(course)
    return courses


def both(math: float, facts: float) -> dict[str, float]:
    return {"math": math, "facts": facts}


def test_a_better_policy_is_the_best_and_the_next_iteration_begins_with_it():
    course = run_through([both(0.3, 0.6), both(0.5, 0.9)], VerdictConfig())[-1]
    assert (course.best.iteration, course.start.iteration, course.gainless) == (1, 1, 0)


def test_a_policy_that_falls_in_one_task_is_kept_and_not_built_upon():
    """The mean of the tasks rises, which is how such a fall is usually missed."""
    levels = [both(0.3, 0.5), both(0.6, 0.6), both(0.5, 0.9)]
    course = run_through(levels, VerdictConfig())[-1]
    assert course.latest.iteration == 2
    assert (course.best.iteration, course.start.iteration, course.gainless) == (1, 1, 1)
    assert course.standing is not None
    assert not course.standing.accepted
    assert "math" in course.standing.reason
    assert "10.0 points" in course.standing.reason


def test_what_the_margins_allow_is_built_upon_without_being_the_best():
    levels = [both(0.3, 0.5), both(0.60, 0.60), both(0.59, 0.60)]
    course = run_through(levels, VerdictConfig())[-1]
    assert (course.best.iteration, course.start.iteration, course.gainless) == (1, 2, 1)


def test_small_steps_down_do_not_add_up():
    """Each policy is compared with the best, not with the one before."""
    levels = [
        both(0.5, 0.5),
        both(0.7, 0.7),
        both(0.695, 0.695),
        both(0.69, 0.69),
        both(0.68, 0.68),
    ]
    courses = run_through(levels, VerdictConfig(margin=0.012, task_margin=0.012))
    assert [course.start.iteration for course in courses] == [0, 1, 2, 3, 1]


def test_without_rollback_the_next_iteration_begins_with_the_latest_and_the_best_stays():
    levels = [both(0.3, 0.5), both(0.6, 0.6), both(0.3, 0.6)]
    course = run_through(levels, VerdictConfig(on_regression="continue"))[-1]
    assert (course.best.iteration, course.start.iteration) == (1, 2)


def test_where_nothing_was_measured_the_latest_goes_on():
    course = Course.of(policy(0))
    standing = standing_after(course, policy(1), [], VerdictConfig())
    assert standing.accepted
    assert (standing.best_iteration, standing.next_iteration) == (1, 1)
    assert "nothing was measured" in standing.reason


def test_a_verdict_is_told_in_one_sentence():
    levels = [both(0.3, 0.5), both(0.6, 0.6), both(0.5, 0.9)]
    numbered = dict(enumerate(levels))
    course = run_through(levels[:2], VerdictConfig())[-1]
    rows = found(policy(2), course, numbered)
    said = told(standing_after(course, policy(2), rows, VerdictConfig()), rows)
    assert "M_2 lies behind the best, M_1, by 10.0 points in math (margin 3.0 points)" in said
    assert said.endswith("the next iteration begins with M_1")


LEVELS = st.lists(
    st.tuples(*[st.floats(0, 1)] * 2).map(lambda both_: both(*both_)), min_size=1, max_size=8
)
CONFIGS = st.builds(
    VerdictConfig,
    on_regression=st.sampled_from(["continue", "rollback", "stop"]),
    margin=st.floats(0, 0.2),
    task_margin=st.floats(0, 0.2),
)


@given(LEVELS, CONFIGS)
def test_the_best_is_never_below_the_first_and_no_task_of_it_far_below_the_best_before(
    levels, config
):
    courses = run_through(levels, config)
    mean = [sum(level.values()) / len(TASKS) for level in levels]
    for before, after in pairwise(courses):
        best, earlier = after.best.iteration, before.best.iteration
        assert mean[best] >= mean[earlier]
        for task in TASKS:
            assert levels[best][task] >= levels[earlier][task] - config.task_margin - 1e-12


@given(LEVELS, CONFIGS.filter(lambda config: config.on_regression == "rollback"))
def test_with_rollback_no_iteration_begins_far_below_the_best(levels, config):
    for course in run_through(levels, config):
        start, best = levels[course.start.iteration], levels[course.best.iteration]
        assert sum(start.values()) / 2 >= sum(best.values()) / 2 - config.margin - 1e-12


@pytest.mark.parametrize("number", [1, 2])
def test_the_verdicts_of_a_course_are_against_the_first_the_latest_and_the_best(number):
    course = run_through(
        [both(0.3, 0.5), both(0.6, 0.6), both(0.5, 0.5)][: number + 1], VerdictConfig()
    )[-1]
    compared = {against: other.iteration for against, other in course.compared.items()}
    assert compared == {"initial": 0, "previous": number, "best": 1}
