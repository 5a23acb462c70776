"""A trained model is published whole, or training resumes: never half, nor with a stale canary."""

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from trainings import plain_job, scripted

from lpfloop.configs.schema import TrainingConfig
from lpfloop.loop.stages.publish import Publishing
from lpfloop.policies.engines.canary import CANARY
from lpfloop.stores import committer
from lpfloop.stores.durable import check_folder, make_folder
from lpfloop.stores.failpoints import arm
from lpfloop.stores.garbage import CANARIES
from lpfloop.stores.lake import CHECKPOINTS

IN_A_FOLDER = SimpleNamespace(keeper=None)
"""A journal without copies in a bucket."""


@pytest.mark.parametrize(
    ("place", "trainings"),
    [
        ("published.sync.before#1", 2),  # given up: lpfloop does not publish after a failed fsync
        ("manifest.rename.before#1", 1),  # the model is still there
        ("published.rename.before#1", 1),
        ("published.rename.after#1", 2),  # published already, but the name may not be durable
    ],
)
def test_full_disk_at_a_publication(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, trainings: int
):
    job = plain_job(tmp_path)
    tries = scripted(monkeypatch, job, "finish()")
    monkeypatch.setattr(committer, "RETRY_S", 0.0)
    folder = make_folder(tmp_path / "run")
    make_folder(folder / CHECKPOINTS)
    run: Any = SimpleNamespace(
        store=SimpleNamespace(folder=folder, journal=IN_A_FOLDER),
        logs=folder / "logs",
        config=SimpleNamespace(training=TrainingConfig(retries=0)),
        stop=SimpleNamespace(halts=False),
        flow=SimpleNamespace(ended=False),
        trainer=None,
        warm=None,
    )
    publishing = Publishing(run=run)
    with arm({place: "enospc"}):
        identity, result = committer.when_there_is_room(
            lambda: publishing.train_and_publish(job), threading.Event()
        )
    publishing.publish_canary(identity, job)
    assert result.metrics == {"loss": 0.5}
    assert len(tries.read_text()) == trainings
    check_folder(folder / CHECKPOINTS / identity)
    assert [p.name for p in (folder / CHECKPOINTS).iterdir()] == [identity]
    assert (folder / CANARIES / identity / CANARY).read_text() == "[]"
