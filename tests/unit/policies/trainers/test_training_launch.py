"""The commands of a training, its number of processes, and the GPUs that they see."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from nodes import allocate
from trainings import plain_job

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError
from lpfloop.configs.training import TrainingConfig
from lpfloop.policies import devices
from lpfloop.policies.trainers.checks import require_training_places
from lpfloop.policies.trainers.job import TrainingError, TrainJob, job_identity, job_json
from lpfloop.policies.trainers.launch import (
    accelerate_settings,
    argv,
    environment,
    left_idle,
    processes_of,
)
from lpfloop.policies.trainers.training_fit import TrainingFit


def training(*settings: str) -> TrainingConfig:
    return load_config(None, None, tuple(f"training.{s}" for s in settings), {}).training


@pytest.fixture
def allocation(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    allocate(monkeypatch, tmp_path / "bin", 2)


@pytest.fixture
def four(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> None:
    gpus = tuple(devices.Gpu(handle=str(n), uuid=f"GPU-{n}f00") for n in range(4))
    monkeypatch.setattr(devices, "driver_gpus", lambda: gpus)
    monkeypatch.setattr(devices, "installed_version", lambda name: "1" if name == "vllm" else None)
    environ.pop(devices.VISIBLE, None)


def made(job: TrainJob) -> TrainJob:
    job.output.mkdir()
    return job


def test_one_process(tmp_path: Path) -> None:
    job = made(plain_job(tmp_path))
    worker = "lpfloop.policies.train_worker"
    assert argv(job) == [sys.executable, "-P", "-m", worker, str(job.folder("job.json"))]
    assert not job.folder("accelerate.json").exists()


def test_launcher_file(tmp_path: Path) -> None:
    fit = TrainingFit(sharding="fsdp2")
    command = argv(made(replace(plain_job(tmp_path), processes=2, fit=fit)))
    told = json.loads(Path(command[command.index("--config_file") + 1]).read_text())
    assert told == accelerate_settings(2, sharding="fsdp2")
    assert (told["distributed_type"], told["fsdp_config"]["fsdp_version"]) == ("FSDP", 2)
    assert told["fsdp_config"]["fsdp_auto_wrap_policy"] == "TRANSFORMER_BASED_WRAP"
    assert told["fsdp_config"]["fsdp_state_dict_type"] == "SHARDED_STATE_DICT"
    assert "--rdzv_backend" not in command


def after(command: list[str], option: str) -> str:
    return command[command.index(option) + 1]


@pytest.mark.usefixtures("allocation", "four")
def test_srun_command(tmp_path: Path, environ: dict[str, str]) -> None:
    environ["SLURM_JOB_CPUS_PER_NODE"] = "72(x2),36"
    environ["SLURMD_NODENAME"] = "first"
    environ["HF_TOKEN"] = "a secret"
    environ["NCCL_SOCKET_IFNAME"] = "ib0"
    job = made(replace(plain_job(tmp_path), processes=4, fit=TrainingFit(nodes=2)))
    command = argv(job)
    assert command[0] == "srun"
    step, node = command[: command.index(sys.executable)], command[command.index(sys.executable) :]
    assert {"--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--cpus-per-task=36"} <= {*step}
    assert {"--relative=0", "--overlap", "--kill-on-bad-exit=1"} <= {*step}
    assert (after(node, "--num_machines"), after(node, "--num_processes")) == ("2", "4")
    assert (after(node, "--rdzv_backend"), after(node, "--main_process_ip")) == ("c10d", "first")
    assert int(after(node, "--main_process_port")) > 0
    assert "--gpu_ids" not in node
    told = environment(job)
    assert "a secret" not in told.values()
    assert told["NCCL_SOCKET_IFNAME"] == "ib0"
    chosen = replace(job, fit=replace(job.fit, devices=(3, 1)))
    assert after(argv(chosen), "--gpu_ids") == "3,1"


def test_auto_processes(subtests):
    for batch_size, gpus, processes in [
        (64, 8, 8),
        (64, 6, 4),
        (2, 4, 1),
        (64, 1, 1),
        (64, 0, 1),
    ]:
        with subtests.test(batch_size=batch_size, gpus=gpus, processes=processes):
            settings = ("processes=auto", f"dpo.batch_size={batch_size}", "dpo.micro_batch_size=2")
            found = training(*settings)
            assert processes_of(found, found.dpo, gpus) == processes
            assert bool(left_idle(found, found.dpo, gpus)) == (processes < gpus)


def test_nodes(subtests):
    for nodes, batch_size, gpus, processes in [
        (2, 64, 8, 16),
        (2, 12, 8, 6),
        (2, 64, 0, 2),
    ]:
        with subtests.test(nodes=nodes, batch_size=batch_size, gpus=gpus, processes=processes):
            over = (f"nodes={nodes}", "dpo.micro_batch_size=2", "processes=auto")
            found = training(*over, f"dpo.batch_size={batch_size}")
            assert processes_of(found, found.dpo, gpus) == processes
            assert bool(left_idle(found, found.dpo, gpus)) == (processes < nodes * gpus)


@pytest.mark.usefixtures("four")
def test_visible_gpus(subtests, tmp_path: Path):
    plain = plain_job(tmp_path)
    for chosen, processes, shown in [
        ("auto", 1, "0"),
        ("auto", 4, "0,1,2,3"),
        ((2, 3), 1, "2"),
        ((3, 1), 2, "3,1"),
    ]:
        with subtests.test(devices=chosen, processes=processes, shown=shown):
            job = replace(plain, processes=processes, fit=TrainingFit(devices=chosen))
            assert environment(job)[devices.VISIBLE] == shown


@pytest.mark.usefixtures("four")
def test_visible_by_environment(tmp_path: Path, environ: dict[str, str]) -> None:
    environ[devices.VISIBLE] = "3,1"
    job = replace(plain_job(tmp_path), fit=TrainingFit(devices=(1,)))
    assert environment(job)[devices.VISIBLE] == "1"
    assert job_json(job) == job_json(replace(job, fit=TrainingFit()))
    with pytest.raises(TrainingError, match="3 processes"):
        environment(replace(job, processes=3, fit=TrainingFit()))


def test_recomputation_keeps_checkpoints(tmp_path: Path) -> None:
    job = plain_job(tmp_path)
    fits = (TrainingFit(gradient_checkpointing=value) for value in ("auto", "always", "never"))
    texts = [job_json(replace(job, fit=fit)) for fit in fits]
    assert len({*texts}) == 3
    assert len({job_identity(text.encode()) for text in texts}) == 1


@pytest.mark.usefixtures("four")
def test_refused_places() -> None:
    small = "dpo.micro_batch_size=2"
    require_training_places(training("processes=4", "sharding=fsdp2", small), ["dpo"])
    with pytest.raises(ConfigError, match="batch_size=16"):
        require_training_places(training("processes=4"), ["dpo"])
    with pytest.raises(ConfigError, match=r"training.processes=5: each needs a GPU"):
        require_training_places(training("processes=5"), ["dpo"])
    with pytest.raises(ConfigError, match="no GPU 4"):
        require_training_places(training("devices=[4]"), ["dpo"])
