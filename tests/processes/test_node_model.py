"""Models of workers on other machines: compared with the head's, downloaded from a bucket."""

import shutil
from pathlib import Path

import pytest

from lpfloop.configs.schema import EngineConfig, RewardConfig
from lpfloop.policies.engines.engine import EngineError
from lpfloop.policies.workers.identity import folder_digest
from lpfloop.policies.workers.model_process import ModelSource, Opening
from lpfloop.policies.workers.node_model import at_hand, opened_elsewhere
from lpfloop.stores.address import STATE, lake_folder
from lpfloop.stores.bucket_objects import bring_folder
from lpfloop.stores.durable import make_folder, publish_folder
from lpfloop.stores.objects import objects_of


def opening_of(model: str | Path, template: str | None = None) -> Opening:
    """Return the head's message that opens an engine on another machine."""
    config = EngineConfig(template=template)
    return opened_elsewhere(Opening(kind="transformers", model=str(model), config=config))


def source(opening: Opening) -> ModelSource:
    assert opening.source is not None
    return opening.source


def folder_here(opening: Opening) -> str:
    folder, copy = at_hand(opening.model, source(opening))
    assert copy is None
    return folder


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
    assert folder_here(opening) == str(model)
    altered(model)
    with pytest.raises(EngineError, match=source(opening).identity[:16]) as refused:
        folder_here(opening)
    assert str(model) in str(refused.value)
    shutil.rmtree(model)
    with pytest.raises(EngineError, match=f"{model} is not there"):
        folder_here(opening)


def test_another_template_is_refused(model: Path, tmp_path: Path) -> None:
    template = tmp_path / "mine.jinja"
    template.write_text("{{ messages[0].content }}")
    opening = opening_of(model, str(template))
    assert folder_here(opening) == opening.model
    template.write_text("{{ messages[-1].content }}")
    with pytest.raises(EngineError, match="template"):
        folder_here(opening)


def test_paths_are_whole(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker on another machine has a different current folder."""
    monkeypatch.chdir(tmp_path)
    Path("mine.jinja").write_text("{{ messages[0].content }}")
    opening = opening_of("model", "mine.jinja")
    assert opening.model == str(model)
    assert template_of(opening) == str(tmp_path / "mine.jinja")
    assert template_of(opening_of("model", "alpaca")) == "alpaca"
    function = Opening(kind="function", model="./mine.py:score", config=RewardConfig())
    assert opened_elsewhere(function).model == f"{tmp_path / 'mine.py'}:score"
    function = Opening(kind="function", model="mine.reward:score", config=RewardConfig())
    assert opened_elsewhere(function).model == "mine.reward:score"


def template_of(opening: Opening) -> str | None:
    assert isinstance(opening.config, EngineConfig)
    return opening.config.template


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
    here, copy = at_hand(opening.model, source(opening))
    placed = Path(here)
    assert placed.is_relative_to(tmp_path / "state" / "weights")
    assert folder_digest(placed) == identity
    assert copy is not None
    copy.release()


@pytest.mark.slow
def test_old_copies_are_removed(model: Path, lake: Path, tmp_path: Path) -> None:
    addresses = []
    for _ in range(3):
        altered(model)
        folder = published(lake, model)
        addresses.append(source(opening_of(folder)).address)
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
