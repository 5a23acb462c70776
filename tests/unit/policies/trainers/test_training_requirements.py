"""What keeps a training from its nodes is said in one sentence."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from nodes import allocate
from trainings import plain_job

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError
from lpfloop.configs.training import TrainingConfig
from lpfloop.policies.trainers import ray_launcher
from lpfloop.policies.trainers.launchers import LAUNCHERS
from lpfloop.policies.trainers.node_plan import NodePlan, meet, planned, seen_plan, write_plan
from lpfloop.policies.trainers.srun_launcher import SrunLauncher
from lpfloop.policies.trainers.train_model import TrainingError
from lpfloop.policies.trainers.training_fit import TrainingFit
from lpfloop.policies.trainers.training_requirements import require_training_places

OVER = ("nodes=2", "launcher=srun", "processes=2", "dpo.micro_batch_size=2")
METHODS = ["dpo"]


def training(*settings: str) -> TrainingConfig:
    return load_config(None, None, tuple(f"training.{s}" for s in settings), {}).training


@pytest.fixture
def allocation(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    allocate(monkeypatch, tmp_path / "bin", 2)


def test_excluding_settings() -> None:
    for settings, told in [
        (["nodes=2"], "launcher=local"),
        (["launcher=srun", "accelerate_config=own.yaml"], "accelerate_config"),
        (["launcher=ray", "devices=[0]"], "devices"),
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
        require_training_places(training("nodes=2", "launcher=srun", "processes=4"), METHODS)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match="srun"):
        require_training_places(training(*OVER), METHODS)


def test_ray_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_launcher, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match="ray is not installed"):
        require_training_places(training("launcher=ray"), METHODS)


def test_stale_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lpfloop.policies.trainers.node_plan.SEEN_S", 0.05)
    old = NodePlan(start="old", nodes=2, processes=1, launcher="srun", devices=(1, 0))
    write_plan(tmp_path, old)
    assert seen_plan(tmp_path, "old") == old
    with pytest.raises(TrainingError, match="does not see"):
        seen_plan(tmp_path, "new")
    first = meet(tmp_path, old, node=0, host="head")
    assert meet(tmp_path, old, node=1, host="other") == first
    assert first.host == "head"
    with pytest.raises(TrainingError, match="what the first node writes"):
        meet(tmp_path, replace(old, start="new"), node=1, host="other")


@pytest.mark.usefixtures("allocation")
def test_srun_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_CPUS_PER_NODE", "72(x2),36")
    monkeypatch.setenv("HF_TOKEN", "a secret")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "ib0")
    job = replace(plain_job(tmp_path), processes=2, fit=TrainingFit(nodes=2, launcher="srun"))
    job.output.mkdir()
    argv = LAUNCHERS["srun"].argv(job)
    assert argv[0] == "srun"
    assert {"--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--cpus-per-task=36"} <= {*argv}
    assert {"--relative=0", "--overlap", "--kill-on-bad-exit=1"} <= {*argv}
    environment = SrunLauncher().environment(job)
    assert "a secret" not in environment.values()
    assert environment["NCCL_SOCKET_IFNAME"] == "ib0"
    assert seen_plan(job.output, argv[-1]).nodes == 2
    assert planned(job).start != argv[-1]
    assert shutil.which("srun") is not None
