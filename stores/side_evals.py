"""Measurements outside the loop: a checkpoint on the user's prompts, and the smoke test.

Their rows are in the run, in stages that are recognised by their labels. Labels of measured
checkpoints end with the benchmark: the name of the file and the hash of its prompts. Labels of the
smoke test have its name after the verb. No stage of the loop has such a label or depends on one.
"""

import re

HASHED = 8
_STAGE = re.compile(
    rf"(?:^|:)(?:evaluate|measure|assess|kl-sample|logprob|kl):(.+-[0-9a-f]{{{HASHED}}})", re.DOTALL
)
SMOKE = "smoke"
_SMOKE = re.compile(
    rf"(?:sample|critique|grade|score_answers|annotate|review|reward|step):({SMOKE}(?:-[0-9]+)?)"
    r"(?::.*)?",
    re.DOTALL,
)


def smoke_name(failed: int) -> str:
    """Return the name of the next smoke test after `failed` failed ones."""
    return f"{SMOKE}-{failed + 1}" if failed else SMOKE


def smoke_test_of(stage: str) -> str | None:
    """Return the smoke test that a stage belongs to; None for any other stage."""
    found = _SMOKE.fullmatch(stage)
    return None if found is None else found[1]


def side_eval_name(name: str, identity: str) -> str:
    """Return the benchmark of the user's prompts: a name, and the hash of their content."""
    return f"{name}-{identity[:HASHED]}"


def side_eval_of(stage: str) -> str | None:
    """Return the benchmark that a stage outside the loop measured; None for a stage of the loop."""
    found = _STAGE.search(stage)
    return found[1] if found is not None and found.end() == len(stage) else smoke_test_of(stage)
