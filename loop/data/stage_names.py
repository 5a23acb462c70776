"""The labels of stages: about the same rows again (`critique:sample#2`), of rounds, of steps.

Later rounds are `refine:round-2` and its judgements: refinements of refinements. A policy that was
published at a step of its training has an eval set with the step in its name.
"""

import re

from ...stores.keys import Json

AGAIN = "#"
ROUND = ":round-"
_ROUND = re.compile(f"{ROUND}[0-9]+")
_EXAM = re.compile(r"(?:^|:)evaluate:|^(?:measure|assess|facts|scores|kl-sample|logprob|kl):")


def sampled_again(label: str, number: int) -> str:
    """Return the label of the stage with the critiques of this number, from 1, of some answers."""
    return label if number == 1 else f"{label}{AGAIN}{number}"


def critique_label(label: str) -> str:
    """Return the label of the stage with the first critiques."""
    return label.partition(AGAIN)[0]


def in_round(label: str, number: int) -> str:
    """Return the label of the stage that does the same in a round, from 1."""
    return label if number == 1 else f"{label}{ROUND}{number}"


def of_any_round(label: str) -> str:
    """Return the label of the stage that does the same in the first round."""
    return _ROUND.sub("", label)


def is_eval_set(stage: str) -> bool:
    """Whether a stage belongs to the eval set of a policy: its answers, or their judgements."""
    return _EXAM.search(stage) is not None


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
