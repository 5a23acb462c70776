"""A run's rows do not depend on how many replicas of a model share its work."""

from pathlib import Path

import pytest
from commands import call

SETTINGS = {
    "policy.engine.kind": "transformers",
    "critic.model": "none",
    "critic.engine.kind": "scripted",
    "prompts.evaluated": "8",
    "prompts.deciding": "8",
    "prompts.chunk": "2",
}


@pytest.mark.slow
@pytest.mark.model
def test_one_replica_and_two_make_the_same_rows(tmp_path: Path) -> None:
    settings = [f"--set={name}={value}" for name, value in SETTINGS.items()]
    digests = set[str]()
    for count in (1, 2):
        lake = tmp_path / str(count)
        code, _, told = call(
            lake, "run", "--iterations", 0, *settings, f"--set=policy.engine.replicas={count}"
        )
        assert code == 0, told
        logs = [path.name for path in (lake / "runs" / "tiny-rlrf" / "logs").glob("engine-*")]
        assert len(logs) == count
        digests.add(call(lake, "lake", "digest")[1])
    assert len(digests) == 1
