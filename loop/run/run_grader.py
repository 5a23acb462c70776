"""Who grades in a run: nobody, unless its recipe has completions graded."""

from ...configs.schema import RunConfig
from ...critics.grading.grader import Grader
from .completers import grades


def grader_of(config: RunConfig) -> Grader | None:
    """Return the grader of a run, or None for one that learns from no grades.

    Raises:
        ConfigError: if its templates cannot be used.
    """
    return Grader.from_config(config.grading) if grades(config) else None
