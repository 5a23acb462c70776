"""What is called after the step of a training: the exam of a policy that was published there."""

import re

from ...stores.keys import Json

_STEP = re.compile(r"(.+)-step-([0-9]+)")


def step_benchmark(split: str, step: int) -> str:
    """Return the benchmark of a step's policy on the prompts of a split."""
    return f"{split}-step-{step}"


def step_of(benchmark: str) -> tuple[str, int] | None:
    """Return the split and the step that a benchmark is called after; None for any other."""
    found = _STEP.fullmatch(benchmark)
    return None if found is None else (found[1], int(found[2]))


def step_params(step: int | None) -> dict[str, Json]:
    """Return what the keys of a step's exam say besides those of an exam of M_t.

    The policy of a step may be M_t as well, and is examined again as that.
    """
    return {} if step is None else {"step": step}
