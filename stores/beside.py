"""What is measured beside the loop: a checkpoint on prompts of one's own, and the smoke test.

Its rows lie in the run, in stages whose labels say so. Those of a checkpoint end with its
benchmark: the name of the file and the hash of its prompts. Those of the smoke test have its name
behind the verb. No stage of the loop is called so, and nothing that it makes depends on one.
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
    """Return what the smoke test is called that follows so many that failed."""
    return f"{SMOKE}-{failed + 1}" if failed else SMOKE


def smoked(stage: str) -> str | None:
    """Return the smoke test that a stage belongs to; None for any other stage."""
    found = _SMOKE.fullmatch(stage)
    return None if found is None else found[1]


def benchmark_beside(name: str, identity: str) -> str:
    """Return the benchmark of prompts of the user's own: a name, and the hash of what they say."""
    return f"{name}-{identity[:HASHED]}"


def measured_beside(stage: str) -> str | None:
    """Return the benchmark that a stage measured beside the loop; None for a stage of the loop."""
    found = _STAGE.search(stage)
    return found[1] if found is not None and found.end() == len(stage) else smoked(stage)
