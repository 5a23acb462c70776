"""Training in as many processes as there are GPUs for, each process seeing no other GPU."""

from dataclasses import replace
from pathlib import Path

import pytest
from gpus import show_gpus
from trainings import plain_job
from typer.testing import CliRunner

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError
from lpfloop.configs.training import TrainingConfig
from lpfloop.loop.cli.app import app
from lpfloop.policies.devices import VISIBLE
from lpfloop.policies.trainers.accelerate_launch import child_environment
from lpfloop.policies.trainers.trainer_faults import TrainingError
from lpfloop.policies.trainers.trainer_job import job_json
from lpfloop.policies.trainers.training_fit import TrainingFit
from lpfloop.policies.trainers.training_places import (
    left_idle,
    processes_of,
)
from lpfloop.policies.trainers.training_requirements import require_training_places


def training(*settings: str) -> TrainingConfig:
    return load_config(None, None, tuple(f"training.{s}" for s in settings), {}).training


@pytest.fixture
def four(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    show_gpus(monkeypatch, tmp_path, *["24 GiB"] * 4)


@pytest.mark.parametrize(
    ("batch_size", "gpus", "processes"),
    [(64, 8, 8), (64, 6, 4), (12, 8, 6), (6, 4, 3), (2, 4, 1), (64, 1, 1), (64, 0, 1)],
)
def test_by_itself_it_takes_the_most_processes_that_share_a_step(
    batch_size: int, gpus: int, processes: int
) -> None:
    settings = ("processes=auto", f"dpo.batch_size={batch_size}", "dpo.micro_batch_size=2")
    found = training(*settings)
    assert processes_of(found, found.dpo, gpus) == processes
    assert bool(left_idle(found, found.dpo, gpus)) == (processes < gpus)


def test_the_set_of_people_is_shared_evenly_too() -> None:
    shares = ("dpo.micro_batch_size=2", "next_token.weight=0.1", "next_token.batch_size=6")
    found = training("processes=auto", *shares)
    assert processes_of(found, found.dpo, 4) == 2


def test_a_number_is_kept() -> None:
    found = training("processes=3")
    assert (processes_of(found, found.dpo, 8), left_idle(found, found.dpo, 8)) == (3, "")


@pytest.mark.parametrize(
    ("nodes", "batch_size", "gpus", "processes"),
    [(2, 64, 8, 16), (2, 12, 8, 6), (3, 12, 4, 6), (4, 8, 2, 4), (2, 64, 0, 2)],
)
def test_over_nodes_each_has_the_same_share_of_the_processes(
    nodes: int, batch_size: int, gpus: int, processes: int
) -> None:
    over = (f"nodes={nodes}", "launcher=srun", "dpo.micro_batch_size=2", "processes=auto")
    found = training(*over, f"dpo.batch_size={batch_size}")
    assert processes_of(found, found.dpo, gpus) == processes
    assert bool(left_idle(found, found.dpo, gpus)) == (processes < nodes * gpus)


@pytest.mark.usefixtures("four")
@pytest.mark.parametrize(
    ("devices", "processes", "shown"),
    [("auto", 1, "0"), ("auto", 4, "0,1,2,3"), ((2, 3), 1, "2"), ((3, 1), 2, "3,1")],
)
def test_the_trainer_sees_the_gpus_of_its_processes_alone(
    tmp_path: Path, devices: tuple[int, ...], processes: int, shown: str
) -> None:
    job = replace(plain_job(tmp_path), processes=processes, fit=TrainingFit(devices=devices))
    assert child_environment(job)[VISIBLE] == shown


@pytest.mark.usefixtures("four")
def test_what_is_visible_is_counted_and_goes_on_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VISIBLE, "3,1")
    job = replace(plain_job(tmp_path), fit=TrainingFit(devices=(1,)))
    assert child_environment(job)[VISIBLE] == "1"
    assert job_json(job) == job_json(replace(job, fit=TrainingFit()))
    with pytest.raises(TrainingError, match="3 processes need a GPU each, and there are 2"):
        child_environment(replace(job, processes=3, fit=TrainingFit()))


@pytest.mark.usefixtures("four")
def test_what_cannot_be_trained_here_is_refused_before_anything_is_made() -> None:
    small = "dpo.micro_batch_size=2"
    require_training_places(training("processes=4", "sharding=fsdp2", small), ["dpo"])
    with pytest.raises(ConfigError, match=r"dpo.batch_size=16 is not a multiple of .*\(4 x 16 ="):
        require_training_places(training("processes=4"), ["dpo"])
    with pytest.raises(ConfigError, match=r"training.processes=5: each needs a GPU"):
        require_training_places(training("processes=5"), ["dpo"])
    with pytest.raises(ConfigError, match=r"training.devices=\[4\]: there is no GPU 4"):
        require_training_places(training("devices=[4]"), ["dpo"])


def test_nothing_is_divided_on_a_cpu(tmp_path: Path) -> None:
    given = ["run", "--lake", str(tmp_path / "lake"), "--set", "training.sharding=fsdp2"]
    told = CliRunner().invoke(app, given)
    assert told.exit_code == 2
    assert "training.sharding=fsdp2: no GPU is visible here" in told.output
    assert not (tmp_path / "lake").exists()


@pytest.mark.model
def test_trl_refuses_more_gpus_than_processes(tmp_path: Path) -> None:
    """What the trainer is kept from: transformers counts a model's GPUs by those it sees."""
    from datasets import Dataset
    from trl.trainer.sft_config import SFTConfig
    from trl.trainer.sft_trainer import SFTTrainer

    args = SFTConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, report_to="none")
    assert args.n_gpu == 0
    args._n_gpu = 4
    rows = Dataset.from_list([{"prompt": "one", "completion": "two"}])
    from trainings import make_model

    with pytest.raises(ValueError, match=r"nn\.DataParallel"):
        SFTTrainer(model=str(make_model(tmp_path / "model")), args=args, train_dataset=rows)
