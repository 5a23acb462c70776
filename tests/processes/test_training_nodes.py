"""lpfloop tries a training's nodes before it pays for anything, with a fake Slurm."""

from pathlib import Path

import pytest
from nodes import allocate

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError
from lpfloop.configs.training import TrainingConfig
from lpfloop.policies.trainers.checks import require_nodes

OVER = ("nodes=2", "processes=2", "dpo.micro_batch_size=2")


def training(*settings: str) -> TrainingConfig:
    return load_config(None, None, tuple(f"training.{s}" for s in settings), {}).training


@pytest.fixture
def allocation(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    allocate(monkeypatch, tmp_path / "bin", 2)


@pytest.mark.usefixtures("allocation")
def test_nodes_see_folder(tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    require_nodes(training(*OVER), tmp_path / "lake" / "runs" / "a")
    require_nodes(training(), tmp_path / "lake")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.usefixtures("allocation")
def test_node_on_another_disk(tmp_path: Path, environ: dict[str, str]) -> None:
    environ["OTHER_DISK"] = f"{tmp_path}:{tmp_path / 'other'}"
    with pytest.raises(ConfigError, match=r"a disk that all of them share.*No such file"):
        require_nodes(training(*OVER), tmp_path)
    assert not list(tmp_path.glob(".nodes-*"))
