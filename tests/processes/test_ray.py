"""Workers in a Ray cluster give the answers of local workers, even if processes die."""

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import ray
from processes import ended, hosted, ray_cluster_of, wait_until
from workers import SAMPLING, ordered

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.engines.engine import Batch, Request
from lpfloop.policies.workers import hosted_model
from lpfloop.policies.workers.hosted_model import HostedModel
from lpfloop.policies.workers.model_process import Opening
from lpfloop.policies.workers.places import Placement
from lpfloop.policies.workers.ray_cluster import RayRequest, ray_cluster
from lpfloop.policies.workers.ray_process import RayProcess
from lpfloop.stores.records import Message

SCRIPTS = """
import os, time

def named(request, sampling):
    time.sleep(0.01)
    return str(os.getpid())

def environment(request, sampling):
    return " ".join(os.environ)
"""
ONE = RayRequest(gpus=0, cpus=1)
IN_RAY = Placement(place="ray")

Opener = Callable[..., HostedModel[EngineConfig]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Iterator[str]:
    """A cluster whose workers find the scripts of these tests; gives its address."""
    folder = tmp_path_factory.mktemp("scripts")
    (folder / "node_scripts.py").write_text(SCRIPTS)
    secret = {"HF_TOKEN": "made up"}
    with ray_cluster_of(folder, root / "tests" / "helpers", variables=secret) as address:
        yield address
        ray.shutdown()


@pytest.fixture(autouse=True)
def joined(cluster: str, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Connect this process to the tests' cluster, with a short delay before restarts."""
    environ["RAY_ADDRESS"] = cluster
    monkeypatch.setattr(hosted_model, "LONGEST_PAUSE", 0.01)


@pytest.fixture
def opened(tmp_path: Path, root: Path, environ: dict[str, str]) -> Iterator[Opener]:
    """Open engines with a scripted model, by Ray or by a pipe."""
    environ["PYTHONPATH"] = str(root / "tests" / "helpers")
    engines: list[HostedModel[EngineConfig]] = []

    def open_scripted(
        place: str = "ray", count: int = 1, **settings: object
    ) -> HostedModel[EngineConfig]:
        given = {"kind": "scripted", "script": "workers:behave", **settings}
        config = EngineConfig.model_validate(given)
        log = tmp_path / "worker.log"
        if place == "local":
            engines.append(hosted(config, log))
            return engines[-1]

        def start(
            _number: int,
            _at: Placement,
            model: str,
            config: EngineConfig,
            wake: threading.Event,
        ) -> RayProcess:
            return RayProcess(Opening(kind="scripted", model=model, config=config), wake, ONE)

        engines.append(HostedModel(start, "none", config, lambda _config: (IN_RAY,) * count))
        return engines[-1]

    yield open_scripted
    for engine in engines:
        engine.close()


def batch(key: str, n: int = 1) -> Batch:
    messages = (Message(role="user", content="w"),)
    requests = (Request(request_id=f"{key}/{i}", messages=messages, seed=i) for i in range(n))
    return Batch(key=key, requests=tuple(requests), sampling=SAMPLING)


def cpus_free() -> int:
    return ray_cluster().free_cpus


def test_ray_equals_pipe(opened: Opener) -> None:
    asked = [batch(f"b{n}", 1 + n % 7) for n in range(60)]
    asked += [ordered("long", "w" * 300_000, "x")]
    by_ray = list(opened().generate(asked))
    by_pipe = list(opened("local").generate(asked))
    assert by_ray == by_pipe
    assert len(by_ray) == 61


@pytest.mark.slow
def test_three_of_four_actors_are_killed(opened: Opener, caplog: pytest.LogCaptureFixture) -> None:
    before = cpus_free()
    pool = opened(count=4, script="node_scripts:named")
    killed = set[int]()
    drawn = Counter[str]()
    for result in pool.generate(batch(f"b{n}", 2) for n in range(800)):
        drawn.update(completion.request_id for completion in result.answers)
        actor = int(result.answers[0].text)
        if len(killed) < 3 and actor not in killed:
            killed.add(actor)
            os.kill(actor, signal.SIGKILL)
    assert drawn == Counter(f"b{n}/{i}" for n in range(800) for i in range(2))
    told = [r.getMessage() for r in caplog.records if "its actor died" in r.getMessage()]
    assert len(told) == 3
    for actor in killed:
        wait_until(lambda actor=actor: ended(actor))
    wait_until(lambda: cpus_free() == before - 4)
    pool.close()
    wait_until(lambda: cpus_free() == before)


def test_faults_of_actors(opened: Opener, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    faults = {"leave": "the last words", "overflow": "MemoryError", "refuse": "no finite"}
    asked = [ordered(f, f"{f} once {tmp_path / f}") for f in faults] + [ordered("x", "hang")]
    engine = opened(hang_timeout_s=5.0, restarts=2)
    found = {r.key: r.answers[0] for r in engine.generate(asked)}
    assert {found[f].text for f in faults} == {f"{f} {100 * len(f)}" for f in faults}
    assert "no result for 5 s" in (found["x"].error or "")
    told = [r.getMessage() for r in caplog.records if "restart" in r.getMessage()]
    for words in faults.values():
        assert any(words in line for line in told), (words, told)


def test_secrets_of_the_node_stay_there(opened: Opener) -> None:
    [result] = opened(script="node_scripts:environment").generate([batch("b")])
    names = result.answers[0].text.split()
    assert "PATH" in names
    assert "HF_TOKEN" not in names


@pytest.mark.slow
def test_sigterm_handlers_stay(cluster: str) -> None:
    """Ray's handler of SIGTERM would end the process without closing anything."""
    script = """
import signal
signal.signal(signal.SIGTERM, lambda *_: None)
before = signal.getsignal(signal.SIGTERM)
from lpfloop.policies.workers.ray_cluster import join_cluster
join_cluster()
assert signal.getsignal(signal.SIGTERM) is before
"""
    environment = {**os.environ, "RAY_ADDRESS": cluster}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True)
