"""Why a model could not be loaded, if another try would end the same.

A setting that the model does not allow, a folder without weights, a damaged file are final. What
may pass is not: memory or a device that another process still holds, a disk or a line that fails.
"""

import re

from .engine import UnloadableError

PASSING = re.compile(
    r"memory|CUDA|NCCL|cuDNN|\bHIP\b|\bXPU\b|driver|engine core|time[ds]? ?out|connection"
    r"|\[Errno (?!2\]|13\]|20\]|21\])",
    re.IGNORECASE,
)
"""Words of what may pass; the numbers are those of a missing or forbidden file or folder."""

WORDY = re.compile(r" \[type=.*|For further information .*")
"""What pydantic adds to a message."""

LONGEST = 400


def final_fault(model: str, error: Exception) -> UnloadableError | None:
    """Return the error to tell of a model that will never load; None if another try may help."""
    if PASSING.search(str(error)):
        return None
    said = " ".join(WORDY.sub("", " ".join(str(error).split())).split())[:LONGEST]
    return UnloadableError(
        f"{model} cannot be loaded: {said or type(error).__name__}; correct the setting or the "
        "folder, then run it again"
    )
