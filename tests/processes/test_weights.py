"""Weights travel by identity: found on a shared disk, fetched once from a bucket, or refused."""

import shutil
from pathlib import Path

import pytest

from lpfloop.policies.workers.identity import folder_digest
from lpfloop.policies.workers.weights import CACHE, NodeWeights, travelling
from lpfloop.policies.workers.wire import Frame
from lpfloop.stores.address import STATE, lake_folder
from lpfloop.stores.durable import make_folder, publish_folder
from lpfloop.stores.objects import objects_of

pytestmark = pytest.mark.slow


def opening_of(folder: Path, **config: object) -> Frame:
    return travelling(
        {"op": "open", "role": "engine", "kind": "transformers", "model": str(folder)}
        | {"config": config}
    )


def at_hand(opening: Frame) -> Frame:
    """Return the frame that a worker would get, as an agent makes it."""
    node = NodeWeights()
    placed = node.at_hand(opening)
    node.close()
    return placed


@pytest.fixture
def cache(tmp_path, environ) -> Path:
    """This machine's place for weights, as an agent sees it."""
    environ[CACHE] = str(tmp_path / "nvme")
    return tmp_path / "nvme"


@pytest.fixture
def model(tiny_policy, tmp_path) -> Path:
    return shutil.copytree(tiny_policy, tmp_path / "model")


def altered(folder: Path) -> None:
    """Change one byte of the weights."""
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def published(lake: Path, folder: Path) -> Path:
    """Publish a model as a checkpoint of a run; return its folder on the head."""
    run = lake / "runs" / "a"
    draft = shutil.copytree(folder, make_folder(run / "work") / "draft")
    name = publish_folder(draft, make_folder(run / "checkpoints"))
    objects_of(run).publish(run / "checkpoints" / name)
    return run / "checkpoints" / name


@pytest.fixture
def lake(bucket, tmp_path, environ) -> Path:
    environ[STATE] = str(tmp_path / "state")
    return lake_folder(f"s3://{bucket}/team/lake")


def test_other_bytes_at_the_heads_path_are_refused_by_name(model, cache):
    opening = opening_of(model)
    assert "refused" not in at_hand(opening)
    altered(model)
    refused = at_hand(opening)["refused"]
    assert f"{model} holds other weights (identity " in refused
    assert opening["weights"]["identity"][:16] in refused


@pytest.mark.parametrize("harm", [altered, lambda folder: (folder / "config.json").unlink()])
def test_a_damaged_folder_at_the_heads_path_does_not_hide_the_bucket(model, lake, cache, harm):
    folder = published(lake, model)
    opening = opening_of(folder)
    harm(folder)
    placed = Path(at_hand(opening)["model"])
    assert placed.is_relative_to(cache)
    assert folder_digest(placed) == opening["weights"]["identity"]
