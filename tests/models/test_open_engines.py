"""lpfloop gives new weights to a running engine, or starts a separate process."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from models import conversations, descend

from lpfloop.configs.load import load_config
from lpfloop.loop.run.models import Models, Served, place_of
from lpfloop.policies.engines.canary import CanaryRow, StaleWeightsError, write_canary
from lpfloop.policies.engines.engine import Engine

pytestmark = pytest.mark.model
REAL = ("policy.engine.kind=transformers", "critic.engine.kind=transformers")


def models(tmp_path: Path, asked: tuple[str, ...] = ("critic",)) -> Models:
    config = load_config("tiny", None, ["critic.model=tiny", *REAL], {})
    return Models.of(config, tmp_path, {role: place_of(config, role) for role in asked})


@pytest.fixture
def started(caplog: pytest.LogCaptureFixture) -> Callable[[], int]:
    """Give the number of worker processes that were started."""
    caplog.set_level(logging.INFO, "lpfloop.worker")
    return lambda: sum("a worker process loads" in r.getMessage() for r in caplog.records)


def checkpoint(parent: Served, folder: Path) -> Served:
    """Train on: return the next policy, published with its canary."""
    rows = descend(Path(parent.location), folder)
    return published(parent, folder, rows)


def published(parent: Served, folder: Path, rows: list[CanaryRow]) -> Served:
    canary = folder.with_name(f"{folder.name}-canary")
    canary.mkdir()
    write_canary(canary, rows)
    return replace(parent, identity=folder.name, location=str(folder), canary=canary)


def said(engine: Engine) -> list:
    return engine.logprobs(conversations())


def test_one_process_for_all_policies(tmp_path, started):
    opened = models(tmp_path / "logs")
    critic = opened.engine(opened.feedback)
    assert opened.engine(opened.initial) is critic
    first = checkpoint(opened.initial, tmp_path / "m_1")
    policy = opened.engine(first)
    assert started() == 2
    second = checkpoint(first, tmp_path / "m_2")
    before = said(policy)
    opened.make_room()
    assert opened.engine(second) is policy
    assert said(policy) != before
    assert opened.engine(opened.feedback) is critic
    assert started() == 2
    # A request to the earlier policy reloads its weights into the process that has replaced them.
    assert said(opened.engine(first)) == before
    assert started() == 2
    opened.close()


def test_stale_weights_get_a_new_process(tmp_path, started, caplog):
    opened = models(tmp_path / "logs", asked=())
    opened.engine(opened.initial)
    rows = descend(Path(opened.initial.location), tmp_path / "m_1")
    swapped = [
        replace(r, logprob_before=r.logprob_after, logprob_after=r.logprob_before) for r in rows
    ]
    with pytest.raises(StaleWeightsError):
        opened.engine(published(opened.initial, tmp_path / "m_1", swapped))
    assert started() == 2
    assert "the new weights get a new process" in caplog.text
    opened.close()
