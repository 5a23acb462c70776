"""Nodes of a training are tried before anything is paid: by a stand-in for Slurm, and Ray."""

from pathlib import Path

import pytest
from nodes import allocate, alter

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError
from lpfloop.configs.training import TrainingConfig
from lpfloop.policies.trainers import srun_launcher
from lpfloop.policies.trainers.training_requirements import require_nodes

OVER = ("nodes=2", "launcher=srun", "processes=2", "dpo.micro_batch_size=2")
METHODS = ["dpo"]


def training(*settings: str) -> TrainingConfig:
    return load_config(None, None, tuple(f"training.{s}" for s in settings), {}).training


@pytest.fixture
def allocation(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    allocate(monkeypatch, tmp_path / "bin", 2)


@pytest.mark.usefixtures("allocation")
def test_nodes_see_folder(tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    require_nodes(training(*OVER), METHODS, tmp_path / "lake" / "runs" / "a")
    require_nodes(training(), METHODS, tmp_path / "lake")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.usefixtures("allocation")
def test_node_on_another_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    alter(monkeypatch, srun_launcher, SEEN_S="2", ELSEWHERE=str(elsewhere))
    with pytest.raises(ConfigError, match="does not see"):
        require_nodes(training(*OVER), METHODS, tmp_path)
    assert not list(tmp_path.glob(".nodes-*"))
