"""Models of workers on other machines: compared with the head's, downloaded from a bucket."""

import shutil
from pathlib import Path

import pytest

from lpfloop.policies.workers.identity import folder_digest
from lpfloop.policies.workers.node_model import NodeModel, opened_elsewhere
from lpfloop.policies.workers.wire import Frame
from lpfloop.stores.address import STATE, lake_folder
from lpfloop.stores.brought_folder import bring_folder
from lpfloop.stores.durable import make_folder, publish_folder
from lpfloop.stores.objects import objects_of


def opening_of(model: str | Path, kind: str = "transformers", **config: object) -> Frame:
    """Return the frame that opens a worker on another machine, as the head sends it."""
    given = {"op": "open", "role": "engine", "kind": kind, "model": str(model), "config": config}
    return opened_elsewhere(given)


def altered(folder: Path) -> None:
    """Change one byte of the weights."""
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@pytest.fixture
def model(tiny_policy: Path, tmp_path: Path) -> Path:
    return shutil.copytree(tiny_policy, tmp_path / "model")


def test_other_weights_are_refused(model: Path) -> None:
    opening = opening_of(model)
    assert NodeModel().at_hand(opening)["model"] == str(model)
    altered(model)
    refused = NodeModel().at_hand(opening)["refused"]
    assert str(model) in refused
    assert opening["sought"]["identity"][:16] in refused
    shutil.rmtree(model)
    assert f"{model} is not there" in NodeModel().at_hand(opening)["refused"]


def test_another_template_is_refused(model: Path, tmp_path: Path) -> None:
    template = tmp_path / "mine.jinja"
    template.write_text("{{ messages[0].content }}")
    opening = opening_of(model, template=str(template))
    assert "refused" not in NodeModel().at_hand(opening)
    template.write_text("{{ messages[-1].content }}")
    assert "template" in NodeModel().at_hand(opening)["refused"]


def test_paths_are_whole(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder of a worker on another machine is another one."""
    monkeypatch.chdir(tmp_path)
    Path("mine.jinja").write_text("{{ messages[0].content }}")
    opening = opening_of("model", template="mine.jinja")
    assert opening["model"] == str(model)
    assert opening["config"]["template"] == str(tmp_path / "mine.jinja")
    assert opening_of("model", template="alpaca")["config"]["template"] == "alpaca"
    function = opening_of("./mine.py:score", "function")
    assert function["model"] == f"{tmp_path / 'mine.py'}:score"
    assert opening_of("mine.reward:score", "function")["model"] == "mine.reward:score"


@pytest.fixture
def lake(bucket: str, tmp_path: Path, environ: dict[str, str]) -> Path:
    environ[STATE] = str(tmp_path / "state")
    return lake_folder(f"s3://{bucket}/team/lake")


def published(lake: Path, folder: Path) -> Path:
    """Publish a model as a checkpoint of a run; return its folder on the head."""
    run = lake / "runs" / "a"
    draft = shutil.copytree(folder, make_folder(run / "work") / "draft")
    name = publish_folder(draft, make_folder(run / "checkpoints"))
    objects_of(run).publish(run / "checkpoints" / name)
    return run / "checkpoints" / name


@pytest.mark.slow
@pytest.mark.parametrize("harm", [altered, shutil.rmtree])
def test_checkpoint_is_downloaded(model: Path, lake: Path, tmp_path: Path, harm) -> None:
    folder = published(lake, model)
    identity = folder_digest(folder)
    opening = opening_of(folder)
    harm(folder)
    node = NodeModel()
    placed = Path(node.at_hand(opening)["model"])
    assert placed.is_relative_to(tmp_path / "state" / "weights")
    assert folder_digest(placed) == identity
    node.close()


@pytest.mark.slow
def test_old_copies_are_removed(model: Path, lake: Path, tmp_path: Path) -> None:
    addresses = []
    for _ in range(3):
        altered(model)
        folder = published(lake, model)
        addresses.append(opening_of(folder)["sought"]["address"])
        (model / "config.json").write_text((model / "config.json").read_text() + " ")
    cache = tmp_path / "cache"
    held = bring_folder(addresses[0], cache)
    second = bring_folder(addresses[1], cache)
    second.release()
    third = bring_folder(addresses[2], cache)
    assert held.folder.is_dir()
    assert third.folder.is_dir()
    assert not second.folder.exists()
    held.release()
    third.release()
