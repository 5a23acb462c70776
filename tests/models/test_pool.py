"""Replicas of a real model: their number changes no sample and no score."""

import os
import signal
from pathlib import Path

import pytest

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.engines.engine import (
    Batch,
    BatchResult,
    Request,
    Sampling,
)
from lpfloop.policies.workers.engine_factory import open_engine
from lpfloop.policies.workers.hosted_model import HostedModel
from lpfloop.stores.keys import derive_seed
from lpfloop.stores.records import Message

pytestmark = pytest.mark.model


def test_killed_replica_keeps_samples(tmp_path: Path, tiny_policy: Path) -> None:
    questions = [f"Tom has {n} apples and buys {n + 4}. How many has he?" for n in range(6)]
    asked = [
        Batch(
            key=str(number),
            requests=tuple(
                Request(
                    request_id=f"{number}/{i}",
                    messages=(Message(role="user", content=question),),
                    seed=derive_seed(0, str(number), i),
                )
                for i in range(12)
            ),
            sampling=Sampling(temperature=1.0, top_p=1.0, max_tokens=24),
        )
        for number, question in enumerate(questions)
    ]
    config = EngineConfig(kind="transformers", cpu_threads=1)

    def opened(replicas: int) -> HostedModel[EngineConfig]:
        own = config.model_copy(update={"replicas": replicas})
        engine = open_engine(str(tiny_policy), own, log=tmp_path / "engine.log")
        assert isinstance(engine, HostedModel)
        return engine

    one, two = opened(1), opened(2)
    alone = {r.key: r for r in one.generate(asked)}
    one.close()
    assert {r.key: r for r in two.generate(asked)} == alone
    killed = dict[str, BatchResult]()
    for result in two.generate(asked):
        assert result.key not in killed
        if not killed:
            for pid in two.pids[:1]:
                os.kill(pid or 0, signal.SIGKILL)
        killed[result.key] = result
    two.close()
    assert killed == alone
