"""The best policy of a run, and the start of its next iteration."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from rows import CHECKPOINT, VERDICT

from lpfloop.configs.schema import VerdictConfig
from lpfloop.loop.evaluation.checkpoint_history import CheckpointHistory, standing_after
from lpfloop.stores.records import Checkpoint, PolicyVerdict

TASKS = ("math", "facts")


def policy(number: int) -> Checkpoint:
    return replace(CHECKPOINT, checkpoint_id=f"c{number}", iteration=number)


def found(
    made: Checkpoint, course: CheckpointHistory, levels: dict[int, dict[str, float]]
) -> list[PolicyVerdict]:
    """Return the verdicts on a policy, for these levels of each policy and task."""
    rows = list[PolicyVerdict]()
    for against, other in course.compared.items():
        before, after = levels[other.iteration], levels[made.iteration]
        by_name = {name: (before[name], after[name]) for name in TASKS}
        means = tuple(sum(side) / len(TASKS) for side in zip(*by_name.values(), strict=True))
        beside = replace(
            VERDICT, iteration=made.iteration, checkpoint_id=made.checkpoint_id, against=against,
            other_id=other.checkpoint_id, other_iteration=other.iteration,
        )  # fmt: skip
        rows += [
            replace(
                beside,
                scope="task" if name else "all",
                name=name,
                before=old,
                after=new,
                difference=new - old,
            )
            for name, (old, new) in {"": means, **by_name}.items()
        ]
    return rows


def run_through(levels: list[dict[str, float]], config: VerdictConfig) -> list[CheckpointHistory]:
    """Return the course of a run after each policy, regardless of the policy's parent."""
    numbered = dict(enumerate(levels))
    course = CheckpointHistory.of(policy(0))
    courses = [course]
    for number in range(1, len(levels)):
        made = policy(number)
        standing = standing_after(course, made, found(made, course, numbered), config)
        course = course.having(made, standing)
        courses.append(course)
    return courses


def both(math: float, facts: float) -> dict[str, float]:
    return {"math": math, "facts": facts}


def test_fall_in_one_task():
    """The mean of the tasks rises, and so usually hides such a fall."""
    levels = [both(0.3, 0.5), both(0.6, 0.6), both(0.5, 0.9)]
    course = run_through(levels, VerdictConfig())[-1]
    assert course.latest.iteration == 2
    assert (course.best.iteration, course.start.iteration, course.gainless) == (1, 1, 1)
    assert course.standing is not None
    assert not course.standing.accepted
    assert "math" in course.standing.reason
    assert "10.0 points" in course.standing.reason


def test_small_falls_do_not_add_up():
    """lpfloop compares each policy with the best, not with the one before."""
    levels = [both(level, level) for level in (0.5, 0.7, 0.695, 0.69, 0.68)]
    courses = run_through(levels, VerdictConfig(regression_tolerance=0.012, task_tolerance=0.012))
    assert [course.start.iteration for course in courses] == [0, 1, 2, 3, 1]


LEVELS = st.lists(
    st.tuples(*[st.floats(0, 1)] * 2).map(lambda both_: both(*both_)), min_size=1, max_size=8
)
CONFIGS = st.builds(
    VerdictConfig,
    on_regression=st.sampled_from(["continue", "rollback", "stop"]),
    regression_tolerance=st.floats(0, 0.2),
    task_tolerance=st.floats(0, 0.2),
)


@given(LEVELS, CONFIGS)
def test_best_never_below_first(levels, config):
    courses = run_through(levels, config)
    mean = [sum(level.values()) / len(TASKS) for level in levels]
    for before, after in pairwise(courses):
        best, earlier = after.best.iteration, before.best.iteration
        assert mean[best] >= mean[earlier]
        for task in TASKS:
            assert levels[best][task] >= levels[earlier][task] - config.task_tolerance - 1e-12


@given(LEVELS, CONFIGS.filter(lambda config: config.on_regression == "rollback"))
def test_rollback_keeps_start_near_best(levels, config):
    for course in run_through(levels, config):
        start, best = levels[course.start.iteration], levels[course.best.iteration]
        assert (
            sum(start.values()) / 2 >= sum(best.values()) / 2 - config.regression_tolerance - 1e-12
        )
