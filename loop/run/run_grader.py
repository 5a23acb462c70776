"""Who grades in a run: nobody, unless its recipe asks a pool of models for completions."""

from ...configs.schema import RunConfig
from ...critics.grading.grader import Grader
from .completers import completes


def grader_of(config: RunConfig) -> Grader | None:
    """Return the grader of a run, or None for one that learns from no grades.

    Raises:
        ConfigError: if its templates cannot be used.
    """
    return Grader.from_config(config.grading) if completes(config) else None
