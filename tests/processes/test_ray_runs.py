"""A run with models in a Ray cluster makes the rows of any other run."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import call_command, ray_cluster_of

SETTINGS = {
    "policy.engine.kind": "transformers",
    "policy.engine.cpu_threads": "1",
    "critic.model": "none",
    "critic.engine.kind": "scripted",
    "prompts.max_test": "16",
    "prompts.max_dev": "16",
    "prompts.chunk": "4",
}

pytestmark = [pytest.mark.slow, pytest.mark.model, pytest.mark.crash]


@pytest.fixture
def cluster(root: Path, environ: dict[str, str]) -> Iterator[str]:
    # Ray gives a scorer one core; the last bits of a score depend on the number of threads.
    environ["OMP_NUM_THREADS"] = "1"
    with ray_cluster_of(root / "tests" / "helpers") as address:
        environ["RAY_ADDRESS"] = address
        yield address


def test_same_digest_here_and_in_ray(tmp_path: Path, cluster: str) -> None:
    here = digest(tmp_path / "here")
    in_ray = ("policy.engine.place=ray", "policy.engine.replicas=2", "reward.place=ray")
    assert digest(tmp_path / "ray", *in_ray) == here


def digest(lake: Path, *settings: str) -> str:
    """Return the digest of a run with the common settings and these."""
    every = (*(f"{name}={value}" for name, value in SETTINGS.items()), *settings)
    code, _, told = call_command(
        lake,
        "run",
        "--iterations",
        1,
        "--recipe",
        "reward-only",
        *(f"--set={each}" for each in every),
    )
    assert code == 0, told
    return call_command(lake, "lake", "digest")[1]
