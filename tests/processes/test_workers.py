"""Worker processes: no deadlocks, recovery from faults, no secrets, no orphans.

tests/unit tests supervision of deaths without processes.
"""

import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest
from processes import ended, hosted, wait_until
from workers import ordered

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.engines.engine import Batch, EngineError, Request, Sampling
from lpfloop.policies.workers import hosted_model
from lpfloop.policies.workers.hosted_model import HostedModel
from lpfloop.stores.records import Message

SAMPLING = Sampling(temperature=1.0, top_p=1.0, max_tokens=10_000)
SCRIPTS = """
import json, os, time
from pathlib import Path

HERE = Path(__file__).parent

def waiting(request, sampling):
    while request.request_id != "0/0" and not (HERE / "go on").exists():
        time.sleep(0.01)
    with (HERE / "begun").open("a") as begun:
        print(request.request_id, file=begun)
    return request.messages[-1].content

def environment(request, sampling):
    return json.dumps(dict(os.environ))
"""

Engine = HostedModel[EngineConfig]
Opener = Callable[..., Engine]


@pytest.fixture
def opened(
    tmp_path: Path, root: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Opener]:
    """Open workers with a script, with a short delay before restarts."""
    (tmp_path / "answers.py").write_text(SCRIPTS)
    environ["PYTHONPATH"] = os.pathsep.join([str(root / "tests" / "helpers"), str(tmp_path)])
    monkeypatch.setattr(hosted_model, "LONGEST_PAUSE", 0.01)
    engines: list[Engine] = []

    def open_engine(script: str | None = "workers:behave", **settings: object) -> Engine:
        given = {"kind": "scripted", "script": script, **settings}
        config = EngineConfig.model_validate(given)
        engines.append(hosted(config, tmp_path / "logs" / "worker.log"))
        return engines[-1]

    yield open_engine
    for engine in engines:
        engine.close()


def batch(key: str, n: int = 4, text: str = "two words") -> Batch:
    messages = (Message(role="user", content=text),)
    requests = (Request(request_id=f"{key}/{i}", messages=messages, seed=i) for i in range(n))
    return Batch(key=key, requests=tuple(requests), sampling=SAMPLING)


def texts(engine: Engine, *batches: Batch) -> dict[str, str]:
    return {c.request_id: c.text for r in engine.generate(batches) for c in r.answers}


def restarts(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "restart" in r.getMessage()]


def test_faults_keep_results(opened, tmp_path, caplog) -> None:
    engine = opened()
    faults = {"die": "killed by SIGKILL", "leave": "exit code 7", "overflow": "MemoryError"}
    found = texts(
        engine,
        ordered("a", "w"),
        *(ordered(f"{n}", f"{fault} once {tmp_path / fault}") for n, fault in enumerate(faults)),
    )
    assert found == {"a/0": "w 100", **{f"{n}/0": f"{f} 100" for n, f in enumerate(faults)}}
    told = restarts(caplog)
    assert len(told) == len(faults)
    for line, how in zip(told, faults.values(), strict=True):
        assert how in line
        assert "worker.log" in line


def test_processes_end_with_their_worker(real_python, opened, tmp_path) -> None:
    """Including those that keep its pipe open, and so hide its end."""
    marker = tmp_path / "marker"
    texts(opened(), ordered("a", f"orphan once {marker}"))
    pids = [int(pid) for pid in Path(f"{marker}.pids").read_text().split()]
    assert len(pids) == 3
    for pid in pids:
        wait_until(lambda pid=pid: ended(pid))


def test_more_text_than_pipes_hold(opened) -> None:
    engine = opened(None)
    long = "word " * 4000
    results = engine.generate(batch(str(k), 64, long) for k in range(30))
    found = list(islice(results, 2)) + list(results)
    assert sorted(int(r.key) for r in found) == list(range(30))
    assert all(c.text.endswith(long) for r in found for c in r.answers)


def test_a_stream_left_early(opened, tmp_path) -> None:
    engine = opened("answers:waiting")
    left = engine.generate([batch(str(k), 1) for k in range(50)])
    next(left)
    left.close()
    (tmp_path / "go on").touch()  # the worker could now answer all its requests
    assert list(texts(engine, batch("next", 1, "another text")).values()) == ["another text"]
    assert len((tmp_path / "begun").read_text().splitlines()) < 50


def test_unloadable_models(opened, caplog, tmp_path) -> None:
    with pytest.raises(EngineError, match=r"no\.such:function"):
        texts(opened("no.such:function"), ordered("a", "x"))
    assert not restarts(caplog)
    (tmp_path / "file").touch()
    with pytest.raises(EngineError, match="started"):
        hosted(EngineConfig(kind="scripted"), tmp_path / "file" / "worker.log")


def test_secrets_stay_with_the_parent(opened, environ) -> None:
    names = ("LPFLOOP_API_KEY", "OPENAI_API_KEY", "HF_TOKEN", "VLLM_API_KEY")
    environ.update(dict.fromkeys(names, "made up, too"))
    engine = opened("answers:environment")
    [said] = texts(engine, batch("0", 1)).values()
    assert '"PATH"' in said
    assert not [name for name in names if name in said]
    assert "made up, too" not in said + Path(f"/proc/{engine.pids[0]}/cmdline").read_text()
