"""Runs whose models live in a Ray cluster, or in several places, make the rows of any other run."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import call
from joined import Machines
from ray_clusters import ray_cluster_of

SETTINGS = {
    "policy.engine.kind": "transformers",
    "policy.engine.cpu_threads": "1",
    "critic.model": "none",
    "critic.engine.kind": "scripted",
    "prompts.evaluated": "16",
    "prompts.deciding": "16",
    "prompts.chunk": "4",
}

pytestmark = [pytest.mark.slow, pytest.mark.model, pytest.mark.crash]


@pytest.fixture
def cluster(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with ray_cluster_of(root / "tests" / "support") as address:
        monkeypatch.setenv("RAY_ADDRESS", address)
        yield address


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    started = Machines(tmp_path)
    yield started
    started.end()


def digest(lake: Path, *settings: str) -> str:
    """Return the digest of a run with these settings beside those of all."""
    every = (*(f"{name}={value}" for name, value in SETTINGS.items()), *settings)
    code, _, told = call(
        lake,
        "run",
        "--iterations",
        1,
        "--variant",
        "reward-only",
        *(f"--set={each}" for each in every),
    )
    assert code == 0, told
    return call(lake, "lake", "digest")[1]


def test_a_run_has_the_same_digest_here_in_ray_and_with_replicas_in_three_places(
    tmp_path: Path, cluster: str, machines: Machines
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    machines.start(address)
    elsewhere = (f"workers.listen={address}", f"workers.token_file={machines.token}")
    assert os.environ["RAY_ADDRESS"] == cluster
    here = digest(tmp_path / "here")
    in_ray = ("policy.engine.place=ray", "policy.engine.replicas=2", "reward.place=ray")
    assert digest(tmp_path / "ray", *in_ray) == here
    mixed = ("policy.engine.place={local: 1, ray: 1, tcp: 1}", "reward.place={local: 1, ray: 1}")
    assert digest(tmp_path / "mixed", *elsewhere, *mixed) == here
