"""Names with the step of a training: the eval set of a policy that was published at that step."""

import re

from ...stores.keys import Json

_STEP = re.compile(r"step-([0-9]+):(.+)", re.DOTALL)


def step_benchmark(benchmark: str, step: int | None) -> str:
    """Return the benchmark of a step's policy on a benchmark's prompts; M_t's without a step."""
    return benchmark if step is None else f"step-{step}:{benchmark}"


def step_of(benchmark: str) -> tuple[int, str] | None:
    """Return the step of a benchmark's name, and M_t's benchmark; None for any other."""
    found = _STEP.fullmatch(benchmark)
    return None if found is None else (int(found[1]), found[2])


def step_params(step: int | None) -> dict[str, Json]:
    """Return the additional parameters in the keys of a step's eval set.

    The policy of a step may equal M_t, which is examined separately.
    """
    return {} if step is None else {"step": step}
