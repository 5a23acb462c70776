"""The labels of stages about the same rows again, `critique:sample#2`, or about later ones.

Later ones are `refine:round-2` and its judgements: refinements of refinements.
"""

import re

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
