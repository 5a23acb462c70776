"""A training whose weights, gradients and moments are divided over processes by FSDP2.

Two processes on a CPU, by gloo: the same files for the launcher, the same libraries as on GPUs.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.torch import load_file
from trainings import (
    DISTIL,
    DPO,
    distil_job,
    dpo_job,
    killed_at,
    make_world,
    plain_job,
    same,
    starts,
)

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError
from lpfloop.policies.trainers import trainer_process
from lpfloop.policies.trainers.accelerate_launch import accelerate_settings
from lpfloop.policies.trainers.train_model import TrainingError, TrainJob, train
from lpfloop.policies.trainers.trainer_process import launch_argv
from lpfloop.policies.trainers.training_fit import TrainingFit

SUPPORT = Path(__file__).parent.parent / "support"
FSDP2 = TrainingFit(sharding="fsdp2")
STEPS = 2


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture
def as_on_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let accelerate divide models on a CPU, too."""

    def argv(job: TrainJob) -> list[str]:
        plain = launch_argv(job)
        return ["fsdp_on_cpu" if a == "lpfloop.policies.train_worker" else a for a in plain]

    monkeypatch.setenv("PYTHONPATH", ":".join([str(SUPPORT), *filter(None, sys.path)]))
    monkeypatch.setattr(trainer_process, "launch_argv", argv)


def short_job(world: Path, output: Path, **changes: Any) -> TrainJob:
    """Return a job of two steps in two processes."""
    job = dpo_job(world, output)
    settings = DPO.model_copy(update={"epochs": STEPS * DPO.batch_size / 96, **changes})
    return replace(job, processes=2, settings=settings)


def test_the_launcher_divides_by_blocks_and_writes_checkpoints_in_parts(tmp_path: Path) -> None:
    job = replace(plain_job(tmp_path), processes=2, fit=FSDP2)
    job.output.mkdir()
    argv = launch_argv(job)
    told = json.loads(Path(argv[argv.index("--config_file") + 1]).read_text())
    assert told == accelerate_settings(2, sharding="fsdp2")
    assert (told["distributed_type"], told["fsdp_config"]["fsdp_version"]) == ("FSDP", 2)
    assert told["fsdp_config"]["fsdp_auto_wrap_policy"] == "TRANSFORMER_BASED_WRAP"
    assert told["fsdp_config"]["fsdp_state_dict_type"] == "SHARDED_STATE_DICT"


@pytest.mark.parametrize(
    "settings",
    [
        ("training.accelerate_config=own.yaml",),
        ("training.weights=bfloat16",),
        ("training.lora.r=8", "training.lora.quantise=nf4"),
    ],
)
def test_sharding_is_refused_beside_what_it_does_not_go_with(settings: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=r"training.*sharding"):
        load_config(None, None, ("training.sharding=fsdp2", *settings), {})


@pytest.mark.model
@pytest.mark.usefixtures("as_on_gpus")
def test_what_is_saved_is_every_weight_to_the_bit(world: Path, tmp_path: Path) -> None:
    """No step is this small: what is saved is what was loaded."""
    job = replace(short_job(world, tmp_path / "work", learning_rate=1e-300), fit=FSDP2)
    with pytest.raises(TrainingError, match="same as before training"):
        train(job, log=tmp_path / "train.log")
    before = load_file(world / "model" / "model.safetensors")
    after = load_file(job.output / "model" / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(after[name].equal(tensor.float()) for name, tensor in before.items())


@pytest.mark.slow
@pytest.mark.model
def test_killed_and_resumed_it_is_the_training_that_is_not_divided(
    world: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    plain = train(short_job(world, tmp_path / "plain"), log=tmp_path / "plain.log")
    request.getfixturevalue("as_on_gpus")
    whole, cut = (replace(short_job(world, tmp_path / n), fit=FSDP2) for n in ("whole", "cut"))
    log = tmp_path / "train.log"
    divided = train(whole, log=log, checkpoint_minutes=0)
    killed_at(monkeypatch, cut, log, "trainer.checkpoint.sealed")
    resumed = train(cut, log=log, checkpoint_minutes=0)
    assert starts(cut.output) == [0, 1]
    assert same(resumed, divided)
    names = ("loss", "grad_norm", "rewards/chosen", "logps/chosen")
    for mine, theirs in zip(divided.history, plain.history, strict=True):
        assert [mine[n] for n in names] == pytest.approx([theirs[n] for n in names], abs=1e-5)
    weights = [load_file(r.output / "model.safetensors") for r in (divided, plain)]
    for name, tensor in weights[1].items():
        assert weights[0][name].allclose(tensor, atol=1e-6)


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.usefixtures("as_on_gpus")
def test_a_users_file_that_shards_does_not_lose_the_model(world: Path, tmp_path: Path) -> None:
    """Its loading would make the reference zeros in the second process: rewards begin at 0."""
    told = accelerate_settings(2, sharding="fsdp2")
    del told["fsdp_config"]["fsdp_state_dict_type"]
    told["fsdp_config"]["fsdp_activation_checkpointing"] = True
    file = tmp_path / "own.yaml"
    file.write_text(yaml.safe_dump(told))
    job = replace(short_job(world, tmp_path / "work"), accelerate_config=file)
    result = train(job, log=tmp_path / "train.log")
    assert (result.output / "model.safetensors").is_file()
    assert result.history[0]["rewards/chosen"] == 0


@pytest.mark.slow
@pytest.mark.model
def test_a_teacher_that_is_divided_teaches_the_same(
    world: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Its weights in the second process are not zeros; the mean is over both processes' tokens."""
    settings = DISTIL.model_copy(update={"epochs": 2 / 3, "micro_batch_size": 2})

    def job(name: str, **changes: Any) -> TrainJob:
        return replace(distil_job(world, tmp_path / name), settings=settings, **changes)

    log = tmp_path / "train.log"
    plain = train(job("plain"), log=log)
    both = train(job("both", processes=2), log=log)
    request.getfixturevalue("as_on_gpus")
    divided = train(job("divided", processes=2, fit=FSDP2), log=log)
    names = ("loss", "grad_norm", "teacher/agreement", "teacher/entropy")
    for other in (both, divided):
        for mine, theirs in zip(other.history, plain.history, strict=True):
            assert [mine[n] for n in names] == pytest.approx([theirs[n] for n in names], abs=1e-5)
