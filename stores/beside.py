"""What is measured beside the loop: a checkpoint on prompts of the user's own.

Its rows lie in the run, in stages that end with its benchmark: the name of the file and the hash of
its prompts. No stage of the loop ends so, and nothing that the loop makes depends on such a stage.
"""

import re

HASHED = 8
_STAGE = re.compile(
    rf"(?:^|:)(?:evaluate|measure|assess|kl-sample|logprob|kl):(.+-[0-9a-f]{{{HASHED}}})", re.DOTALL
)


def benchmark_beside(name: str, identity: str) -> str:
    """Return the benchmark of prompts of the user's own: a name, and the hash of what they say."""
    return f"{name}-{identity[:HASHED]}"


def measured_beside(stage: str) -> str | None:
    """Return the benchmark that a stage measured beside the loop; None for a stage of the loop."""
    found = _STAGE.search(stage)
    return found[1] if found is not None and found.end() == len(stage) else None
