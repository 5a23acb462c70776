"""Workers in a Ray cluster: what they answer is what they answer on this machine, whatever dies."""

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
import ray
from descent import conversations, descend
from faulty import SAMPLING, ordered
from ray.util import placement_group_table
from ray_clusters import ray_cluster_of
from waiting import ended, wait_until

from lpfloop.configs.schema import ConfigError, EngineConfig, RewardConfig
from lpfloop.policies.engines.canary import StaleWeightsError, prove, read_canary, write_canary
from lpfloop.policies.engines.engine import Batch, EngineError, Request, Sampling
from lpfloop.policies.workers import ray_channel, supervised
from lpfloop.policies.workers.open import open_engine
from lpfloop.policies.workers.places import Berth
from lpfloop.policies.workers.pool import EnginePool
from lpfloop.policies.workers.ray_channel import ray_workers
from lpfloop.policies.workers.ray_cluster import RayRequest, ray_replicas, ray_request
from lpfloop.policies.workers.worker import child_workers
from lpfloop.policies.workers.worker_models import WorkerEngine
from lpfloop.stores.records import Message

pytestmark = pytest.mark.crash

SCRIPTS = """
import json, os, time

def named(request, sampling):
    time.sleep(0.01)
    return f"{os.getpid()} {os.getppid()}"

def told(request, sampling):
    return json.dumps(dict(os.environ))
"""
ONE = RayRequest(gpus=0, cpus=1)
HERE = Berth(place="ray")

Opener = Callable[..., WorkerEngine]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Iterator[str]:
    """A cluster whose workers find the scripts of these tests; gives its address."""
    folder = tmp_path_factory.mktemp("scripts")
    (folder / "node_scripts.py").write_text(SCRIPTS)
    with ray_cluster_of(folder, root / "tests" / "support") as address:
        yield address
        ray.shutdown()


@pytest.fixture(autouse=True)
def joined(cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process join the tests' cluster; wait little before a restart."""
    monkeypatch.setenv("RAY_ADDRESS", cluster)
    monkeypatch.setattr(supervised, "LONGEST_BACKOFF_S", 0.01)


@pytest.fixture
def opened(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opener]:
    """Open engines with a scripted model, by Ray or by a pipe."""
    monkeypatch.setenv("PYTHONPATH", str(root / "tests" / "support"), prepend=os.pathsep)
    engines: list[WorkerEngine | EnginePool] = []

    def open_scripted(place: str = "ray", count: int = 0, **settings: object) -> object:
        given = {"kind": "scripted", "script": "faulty:behave", **settings}
        config = EngineConfig.model_validate(given)
        log = tmp_path / "worker.log"
        start = ray_workers(ONE) if place == "ray" else child_workers(log=log)

        def opener(_number: int, _berth: Berth, model: str, config: EngineConfig) -> WorkerEngine:
            return WorkerEngine("scripted", model, config, start=start)

        engines.append(
            EnginePool(opener, "none", config, (HERE,) * count)
            if count
            else opener(0, HERE, "none", config)
        )
        return engines[-1]

    yield open_scripted
    for engine in engines:
        engine.close()


def batch(key: str, n: int = 1) -> Batch:
    messages = (Message(role="user", content="w"),)
    requests = (Request(request_id=f"{key}/{i}", messages=messages, seed=i) for i in range(n))
    return Batch(key=key, requests=tuple(requests), sampling=SAMPLING)


def texts(engine: WorkerEngine | EnginePool, asked: Iterable[Batch]) -> dict[str, str]:
    """Draw all batches; no key may come twice."""
    results = list(engine.generate(asked))
    assert len({r.key for r in results}) == len(results)
    return {c.request_id: c.text for r in results for c in r.completions}


def processes(engine: WorkerEngine, key: str = "who") -> tuple[int, int]:
    """Return the ids of a worker and of its actor."""
    [said] = texts(engine, [batch(key)]).values()
    worker, actor = said.split()
    return int(worker), int(actor)


def groups_left() -> list[str]:
    """Return the states of the placement groups that the cluster holds."""
    table = placement_group_table()
    return [told["state"] for told in table.values() if told["state"] != "REMOVED"]


def test_ray_gives_what_a_pipe_gives(opened: Opener) -> None:
    asked = [batch(f"b{n}", 1 + n % 7) for n in range(60)]
    asked += [ordered("long", "w" * 300_000, "x")]
    by_ray = list(opened().generate(asked))
    by_pipe = list(opened("local").generate(asked))
    assert by_ray == by_pipe
    assert len(by_ray) == 61


@pytest.mark.parametrize(
    ("fault", "how"),
    [
        ("die", "killed by SIGKILL"),
        ("leave", "exit code 7"),
        ("overflow", "no memory is left on the device"),
    ],
)
def test_a_worker_that_dies_is_told_of_as_here_and_replaced(
    opened: Opener, tmp_path: Path, caplog: pytest.LogCaptureFixture, fault: str, how: str
) -> None:
    order = f"{fault} once {tmp_path / 'marker'}"
    found = texts(opened(), [ordered("a", "w"), ordered("bb", "x", order, "y")])
    assert found == {"a/0": "w 100", "bb/0": "x 200", "bb/1": f"{fault} 201", "bb/2": "y 202"}
    [told] = [r.getMessage() for r in caplog.records if "restart" in r.getMessage()]
    assert how in told
    assert "Ray worker on" in told


def test_a_worker_that_hangs_is_ended_with_its_actor(opened: Opener, tmp_path: Path) -> None:
    engine = opened(stall_s=5, restarts=3)
    order = f"stop once {tmp_path / 'marker'}"
    assert texts(engine, [ordered("a", "w", order)]) == {"a/0": "w 100", "a/1": "stop 101"}


def test_a_poisoned_request_is_found_through_ray_as_through_a_pipe(opened: Opener) -> None:
    asked = [batch("b0", 3), ordered("bad", "x", "die", "y"), batch("b1", 2)]
    results = [
        sorted(engine.generate(asked), key=lambda result: result.key)
        for engine in (opened(restarts=3), opened("local", restarts=3))
    ]
    assert results[0] == results[1]
    failed = [c for r in results[0] for c in r.completions if c.finish_reason == "failed"]
    assert [c.request_id for c in failed] == ["bad/1"]
    assert "killed by SIGKILL" in str(failed[0].error)


def test_three_of_four_actors_are_killed_and_nothing_is_lost_or_doubled(
    opened: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    pool = opened(count=4, script="node_scripts:named")
    killed = dict[int, int]()
    drawn = Counter[str]()
    for result in pool.generate(batch(f"b{n}", 2) for n in range(800)):
        drawn.update(completion.request_id for completion in result.completions)
        worker, actor = map(int, result.completions[0].text.split())
        if len(killed) < 3 and worker not in killed:
            killed[worker] = actor
            os.kill(actor, signal.SIGKILL)
    assert drawn == Counter(f"b{n}/{i}" for n in range(800) for i in range(2))
    told = [r.getMessage() for r in caplog.records if "its actor died" in r.getMessage()]
    assert len(told) == 3
    for worker in killed:
        wait_until(lambda worker=worker: ended(worker))
    wait_until(lambda: len(groups_left()) == 4)


def test_close_leaves_no_process_and_no_placement_group(opened: Opener) -> None:
    engine = opened(script="node_scripts:named")
    worker, actor = processes(engine)
    assert not ended(worker)
    wait_until(lambda: groups_left() == ["CREATED"])
    engine.close()
    wait_until(lambda: ended(worker) and ended(actor))
    wait_until(lambda: groups_left() == [])
    with pytest.raises(EngineError, match="closed"):
        texts(engine, [batch("later")])


HEAD = """
import sys, time
from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.workers.ray_channel import ray_workers
from lpfloop.policies.workers.ray_cluster import RayRequest
from lpfloop.policies.workers.worker_models import WorkerEngine
from lpfloop.policies.engines.engine import Batch, Request, Sampling
from lpfloop.stores.records import Message

config = EngineConfig(kind="scripted", script="node_scripts:named")
engine = WorkerEngine("scripted", "none", config, start=ray_workers(RayRequest(gpus=0, cpus=1)))
request = Request(request_id="a", messages=(Message(role="user", content="w"),), seed=0)
asked = Batch(key="a", requests=(request,), sampling=Sampling(temperature=1, top_p=1, max_tokens=9))
[result] = engine.generate([asked])
print(result.completions[0].text, flush=True)
time.sleep(600)
"""


def test_a_head_that_is_killed_leaves_nothing_in_the_cluster(cluster: str) -> None:
    wait_until(lambda: groups_left() == [])  # Ray takes away later what the last test had
    environment = {**os.environ, "RAY_ADDRESS": cluster}
    with subprocess.Popen(
        [sys.executable, "-c", HEAD],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as head:
        assert head.stdout is not None
        worker, actor = map(int, head.stdout.readline().split())
        wait_until(lambda: len(groups_left()) == 1)
        head.kill()
    wait_until(lambda: ended(worker) and ended(actor))
    wait_until(lambda: groups_left() == [])


def test_no_secret_of_the_node_reaches_a_worker(opened: Opener) -> None:
    [said] = texts(opened(script="node_scripts:told"), [batch("a")]).values()
    assert '"RAY_' not in said
    assert '"HF_HUB_OFFLINE": "1"' in said


def test_what_no_node_has_is_refused_at_once(opened: Opener) -> None:
    with pytest.raises(
        ConfigError,
        match=r"critic\.engine\.place: ray: a replica needs 99 CPUs on one node, and no node of "
        r"the cluster has so much \(at most 6 CPUs\); lower critic\.engine\.cpu_threads, or add",
    ):
        ray_request(EngineConfig(cpu_threads=99), "critic.engine")
    assert ray_request(EngineConfig(tensor_parallel=4)) == ONE
    assert ray_request(RewardConfig()) == ONE
    assert ray_replicas(1) == 1


def test_a_busy_cluster_is_waited_for_and_that_is_said(
    opened: Opener, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ray_channel, "LOOK_S", 0.5)
    whole = WorkerEngine(
        "scripted",
        "none",
        EngineConfig(kind="scripted", script="faulty:behave"),
        start=ray_workers(RayRequest(gpus=0, cpus=6)),
    )
    assert texts(whole, [batch("a")]) == {"a/0": "w 0"}
    wait_until(lambda: not ray.available_resources().get("CPU"))  # Ray counts later what is taken
    waiting = opened()
    wait_until(lambda: "a replica waits for 1 CPU in the Ray cluster" in caplog.text)
    assert "1 node, 6 CPUs (0 free)" in caplog.text
    whole.close()
    assert texts(waiting, [batch("b")]) == {"b/0": "w 0"}


def test_a_replica_that_waits_too_long_says_what_the_cluster_has(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_channel, "LOOK_S", 0.2)
    monkeypatch.setattr(ray_channel, "PLACEMENT_S", 1.0)
    config = EngineConfig(kind="scripted", script="faulty:behave")
    start = ray_workers(RayRequest(gpus=3, cpus=1))
    never = WorkerEngine("scripted", "none", config, start=start)
    with pytest.raises(EngineError, match="waited 1 s for 3 GPUs and 1 CPU in the Ray cluster"):
        never.ready()
    wait_until(lambda: groups_left() == [])


def test_another_version_on_a_node_is_refused(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_channel, "installed", lambda name: "9.9")
    with pytest.raises(EngineError, match=r"has lpfloop .*, and this machine 9\.9: install the"):
        opened().ready()


def test_a_run_keeps_its_own_way_to_end() -> None:
    """Ray's handler of SIGTERM would end the process without closing anything."""
    script = (
        "import signal\n"
        "signal.signal(signal.SIGTERM, lambda *_: None)\n"
        "before = signal.getsignal(signal.SIGTERM)\n"
        "from lpfloop.policies.workers.ray_cluster import join_cluster\n"
        "join_cluster()\n"
        "assert signal.getsignal(signal.SIGTERM) is before\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1:9", "nobody answers at RAY_ADDRESS=127.0.0.1:9 .*: start one by `ray start --"),
        ("ray://127.0.0.1:10001", "Ray's client is not enough: make this machine a node by"),
        ("nonsense", "the cluster at nonsense cannot be joined: Invalid address format"),
    ],
)
def test_a_cluster_that_cannot_be_joined_is_told_in_a_sentence(address: str, said: str) -> None:
    script = (
        "from lpfloop.policies.workers.ray_cluster import join_cluster\n"
        "try:\n    join_cluster()\nexcept ValueError as error:\n    print(error)\n"
    )
    environment = {**os.environ, "RAY_ADDRESS": address}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert re.search(said, done.stdout), done.stdout + done.stderr


@pytest.mark.model
@pytest.mark.slow
def test_vllm_draws_measures_and_reloads_there_as_here(tiny_policy: Path, tmp_path: Path) -> None:
    given = {"kind": "vllm", "dtype": "float32", "max_model_len": 512, "cpu_threads": 1}
    placed = {"here": {"replicas": 1}, "there": {"place": "ray", "replicas": 2}}
    here, there = (
        open_engine(
            str(tiny_policy),
            EngineConfig.model_validate({**given, **where}),
            log=tmp_path / f"{name}.log",
        )
        for name, where in placed.items()
    )
    asked = [drawn_batch(f"b{n}", n) for n in range(8)]
    moved = tmp_path / "moved"
    template = (tiny_policy / "chat_template.jinja").read_text()
    try:
        by_key = [sorted(e.generate(asked), key=lambda r: r.key) for e in (here, there)]
        assert by_key[0] == by_key[1]
        assert {c.logprob is None for r in by_key[0] for c in r.completions} == {False}
        assert here.logprobs(conversations()) == there.logprobs(conversations())
        write_canary(moved, descend(tiny_policy, moved, template))
        rows = read_canary(moved)
        with pytest.raises(StaleWeightsError):
            prove(there, rows)
        for engine in (here, there):
            engine.reload(moved)
            prove(engine, rows)
        assert here.logprobs(conversations()) == there.logprobs(conversations())
        newer = [sorted(e.generate(asked), key=lambda r: r.key) for e in (here, there)]
        assert newer[0] == newer[1] != by_key[0]
    finally:
        here.close()
        there.close()


def drawn_batch(key: str, seed: int) -> Batch:
    requests = tuple(
        Request(request_id=f"{key}/{place}", messages=messages[:-1], seed=100 * seed + place)
        for place, messages in enumerate(conversations())
    )
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=12, token_ids=True)
    return Batch(key=key, requests=requests, sampling=sampling)
