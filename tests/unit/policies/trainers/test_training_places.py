"""If a training cannot get its nodes, lpfloop explains it in one sentence."""

from pathlib import Path

import pytest
from nodes import allocate

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError
from lpfloop.configs.training import TrainingConfig
from lpfloop.policies.trainers.checks import require_training_places

OVER = ("nodes=2", "processes=2", "dpo.micro_batch_size=2")
METHODS = ["dpo"]


def training(*settings: str) -> TrainingConfig:
    return load_config(None, None, tuple(f"training.{s}" for s in settings), {}).training


@pytest.fixture
def allocation(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    allocate(monkeypatch, tmp_path / "bin", 2)


def test_excluding_settings() -> None:
    for settings, told in [
        (["sharding=fsdp2", "lora.r=8", "lora.quantise=nf4"], "sharding"),
    ]:
        with pytest.raises(ConfigError, match=told):
            training(*settings)


def test_srun_outside_allocation(environ: dict[str, str]) -> None:
    environ.pop("SLURM_JOB_ID", None)
    with pytest.raises(ConfigError, match="Slurm"):
        require_training_places(training(*OVER), METHODS)


@pytest.mark.usefixtures("allocation")
def test_allocation_too_small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    require_training_places(training(*OVER), METHODS)
    with pytest.raises(ConfigError, match="sharding=fsdp2"):
        require_training_places(training(*OVER, "sharding=fsdp2"), METHODS)
    with pytest.raises(ConfigError, match="nodes=3"):
        require_training_places(training(*OVER, "nodes=3"), METHODS)
    with pytest.raises(ConfigError, match="processes=3"):
        require_training_places(training(*OVER, "processes=3"), METHODS)
    with pytest.raises(ConfigError, match="multiple"):
        require_training_places(training("nodes=2", "processes=4"), METHODS)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match="srun"):
        require_training_places(training(*OVER), METHODS)
