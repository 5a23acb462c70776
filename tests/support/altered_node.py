"""A node's part of a training, with what a test alters, as `ALTERED_…` in the environment says.

WORKER: the module of its processes. SEEN_S: how long it looks for files of the others. ELSEWHERE:
a folder that the second node has in place of the work folder, as if its path led to another disk.
"""

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from lpfloop.policies.trainers import accelerate_launch, node_plan, training_node


def alter(monkeypatch: pytest.MonkeyPatch, launcher: ModuleType, **changes: str) -> None:
    """Let a launcher start this module on its nodes."""
    places = [str(Path(__file__).parent), *filter(None, sys.path)]
    monkeypatch.setenv("PYTHONPATH", ":".join(places))
    monkeypatch.setattr(launcher, "NODE_PROGRAM", "altered_node")
    for name, value in changes.items():
        monkeypatch.setenv(f"ALTERED_{name}", value)


def main() -> int:
    """Take part as altered."""
    accelerate_launch.WORKER = os.environ.get("ALTERED_WORKER", accelerate_launch.WORKER)
    node_plan.SEEN_S = float(os.environ.get("ALTERED_SEEN_S", node_plan.SEEN_S))
    work, *rest = sys.argv[1:]
    if os.environ.get("SLURM_PROCID") == "1":
        work = os.environ.get("ALTERED_ELSEWHERE", work)
    return training_node.main([work, *rest])


if __name__ == "__main__":
    sys.exit(main())
