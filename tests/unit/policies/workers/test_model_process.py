"""Batches and results survive pickling; a worker has a separate environment."""

import pickle
from pathlib import Path

import pytest

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.engines.engine import Batch, Request, Sampling
from lpfloop.policies.workers import environment
from lpfloop.policies.workers.environment import worker_environment
from lpfloop.policies.workers.model_process import Item
from lpfloop.stores.records import Message


def test_a_users_thread_settings_win(environ) -> None:
    environ["OMP_WAIT_POLICY"] = "ACTIVE"
    found = worker_environment(EngineConfig(kv_cache_gib=3))
    assert found["OMP_WAIT_POLICY"] == "ACTIVE"
    assert found["VLLM_CPU_KVCACHE_SPACE"] == "3"


def test_tcmalloc_on_a_cpu(environ, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Engines on a CPU get tcmalloc, if it is installed; other processes and GPUs do not."""
    (tmp_path / "lib64").mkdir()
    path = tmp_path / "lib64" / environment.TCMALLOC
    environ.pop("LD_PRELOAD", None)
    monkeypatch.setattr(environment, "USR", tmp_path)
    monkeypatch.setattr(environment, "is_cpu_build", lambda: True)
    assert "LD_PRELOAD" not in worker_environment(EngineConfig())
    path.touch()
    assert worker_environment(EngineConfig())["LD_PRELOAD"] == str(path)
    assert "LD_PRELOAD" not in worker_environment()
    environ["LD_PRELOAD"] = ""
    assert not worker_environment(EngineConfig())["LD_PRELOAD"]
    del environ["LD_PRELOAD"]
    monkeypatch.setattr(environment, "is_cpu_build", lambda: False)
    assert "LD_PRELOAD" not in worker_environment(EngineConfig())


def test_what_only_endpoints_use_is_not_sent() -> None:
    """A function cannot be pickled, and a conversation of many requests is pickled once."""
    messages = (Message(role="user", content="w" * 1000),)
    plain = [Request(request_id=f"{i}", messages=messages, seed=i) for i in range(100)]
    asked = [
        Request(
            request_id=request.request_id,
            messages=messages,
            seed=request.seed,
            example=lambda seed, _reason: str(seed),
            schema={"type": "object"},
        )
        for request in plain
    ]
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=9, logit_bias=((3, -1.0),))
    batch = Batch(key="k", requests=tuple(asked), sampling=sampling)
    data = pickle.dumps(Item(1, "generate", batch))
    read = pickle.loads(data)  # noqa: S301 -- from the line above
    assert read.batch == Batch(key="k", requests=tuple(plain), sampling=sampling)
    assert read.batch.requests[0].example is None
    assert read.batch.requests[0].schema == {"type": "object"}
    assert len(data) < 20_000
