"""What is called after the step of a training: the exam of a policy that was published there."""

import re

from ...stores.keys import Json

_STEP = re.compile(r"step-([0-9]+):(.+)", re.DOTALL)


def step_benchmark(benchmark: str, step: int | None) -> str:
    """Return the benchmark of a step's policy on the prompts of one, that of M_t without a step."""
    return benchmark if step is None else f"step-{step}:{benchmark}"


def step_of(benchmark: str) -> tuple[int, str] | None:
    """Return the step that a benchmark is called after, and that of M_t; None for any other."""
    found = _STEP.fullmatch(benchmark)
    return None if found is None else (int(found[1]), found[2])


def step_params(step: int | None) -> dict[str, Json]:
    """Return what the keys of a step's exam say besides those of an exam of M_t.

    The policy of a step may be M_t as well, and is examined again as that.
    """
    return {} if step is None else {"step": step}
