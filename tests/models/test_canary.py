"""Engines prove with the canary that they run the trained weights; it detects stale weights."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from models import conversations, descend

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.engines.canary import StaleWeightsError, prove, read_canary, write_canary
from lpfloop.policies.engines.engine import (
    Batch,
    Completion,
    Engine,
    Request,
    Sampling,
)
from lpfloop.policies.workers.engine_factory import open_engine
from lpfloop.policies.workers.hosted_model import HostedModel
from lpfloop.policies.workers.model_process import ChildProcess, Opening
from lpfloop.policies.workers.places import Placement
from lpfloop.stores.records import Message

pytestmark = pytest.mark.model

KINDS = ("transformers", pytest.param("vllm", marks=pytest.mark.slow))


@pytest.fixture(scope="module")
def template(tiny_policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny policy's template with other prompts, and an empty thought in finished turns."""
    own = (tiny_policy / "chat_template.jinja").read_text()
    thought = "'<think>\n\n</think>\n\n' if message['role'] == 'assistant' else 'Say: '"
    changed = own.replace("message['content']", f"({thought}) + message['content']")
    assert changed != own
    path = tmp_path_factory.mktemp("template") / "thoughtful.jinja"
    path.write_text(changed)
    return path


@pytest.fixture(scope="module")
def moved(tiny_policy: Path, template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny policy after a real step of gradient descent on the answers, with its canary."""
    folder = tmp_path_factory.mktemp("moved") / "policy"
    write_canary(folder, descend(tiny_policy, folder, template.read_text()))
    return folder


@pytest.fixture(scope="module", params=KINDS)
def pair(
    request,
    moved: Path,
    tiny_policy: Path,
    template: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Engine, Engine]]:
    """Engines of one kind on the trained weights and on their parent's."""
    config = EngineConfig(kind=request.param, cpu_threads=1, template=str(template))
    logs = tmp_path_factory.mktemp("logs")
    engines = [
        open_engine(str(folder), config, log=logs / f"{place}.log")
        for place, folder in enumerate((moved, tiny_policy))
    ]
    yield engines[0], engines[1]
    for engine in engines:
        engine.close()


def test_stale_weights_are_caught(pair: tuple[Engine, Engine], moved: Path) -> None:
    rows = read_canary(moved)
    fresh, stale = pair
    first, *_ = conversations()
    endless = (first[0], Message(role="assistant", content="pears and apples " * 3000))
    unsaid, said = fresh.logprobs([endless, first])
    assert unsaid is None
    assert said is not None
    prove(fresh.logprobs, rows)
    with pytest.raises(StaleWeightsError):
        prove(stale.logprobs, rows)
    # A warm cache might hide stale weights: sample first, then measure again.
    requests = tuple(
        Request(request_id=str(i), messages=r.messages, seed=i) for i, r in enumerate(rows)
    )
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=8)
    list(fresh.generate([Batch(key="a", requests=requests, sampling=sampling)]))
    prove(fresh.logprobs, rows)
    with pytest.raises(StaleWeightsError):
        prove(stale.logprobs, rows)
    prove(stale.logprobs, ())  # Otherwise it would do nothing in later tests.


def drawn(engine: Engine) -> list[Completion]:
    """Draw answers to the canary's questions, several with one prefix."""
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=16, token_ids=True)
    requests = tuple(
        Request(request_id=f"{place}/{seed}", messages=messages[:-1], seed=seed)
        for place, messages in enumerate(conversations())
        for seed in range(6)
    )
    (result,) = engine.generate([Batch(key="a", requests=requests, sampling=sampling)])
    return list(result.answers)


def opened_pool(folders: list[Path], template: Path, log: Path) -> HostedModel[EngineConfig]:
    """Open replicas, each of which loads its own folder."""

    def start(
        number: int, _at: Placement, _model: str, config: EngineConfig, wake: threading.Event
    ) -> ChildProcess:
        opening = Opening(kind="transformers", model=str(folders[number]), config=config)
        return ChildProcess(opening, wake, log=log)

    config = EngineConfig(template=str(template))
    placements = [Placement(place="local")] * len(folders)
    return HostedModel(start, str(folders[0]), config, lambda _config: placements)


def test_a_stale_replica_is_found(
    moved: Path,
    tiny_policy: Path,
    template: Path,
    tmp_path: Path,
) -> None:
    pool = opened_pool([moved, tiny_policy, moved], template, tmp_path / "log")
    rows = read_canary(moved)
    with pytest.raises(StaleWeightsError, match="replica 2 of 3"):
        pool.prove(rows)
    pool.reload(moved)
    pool.prove(rows)
    os.kill(pool.pids[1] or 0, signal.SIGKILL)
    # Each answer alone gives the same log-probabilities as all in one batch.
    asked = [row.conversation for row in rows] * 5
    said = pool.logprobs(asked)
    assert said == said[: len(rows)] * 5
    pool.close()


def test_vllm_proves_reloaded_weights(
    moved: Path, tiny_policy: Path, template: Path, tmp_path: Path
) -> None:
    config = EngineConfig(kind="vllm", cpu_threads=1, template=str(template))
    engine = open_engine(str(tiny_policy), config, log=tmp_path / "log")
    rows, old = read_canary(moved), drawn(engine)
    with pytest.raises(StaleWeightsError):
        prove(engine.logprobs, rows)
    engine.reload(moved)
    prove(engine.logprobs, rows)
    assert drawn(engine) != old
    engine.close()
