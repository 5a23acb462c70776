"""Checks before a trainer starts: its job, its model's files, free disk space."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from trainings import SFT, plain_job, safetensors, scripted

from lpfloop.configs.training import LoRAConfig
from lpfloop.policies.trainers.checks import needed_bytes, parameters
from lpfloop.policies.trainers.job import TrainingError
from lpfloop.policies.trainers.train_model import train
from lpfloop.policies.trainers.training_fit import TrainingFit


def test_unfit_job(tmp_path: Path):
    plain = plain_job(tmp_path)
    cases = [
        ({"processes": 3}, "batch_size=4 is not a multiple"),
        ({"settings": SFT}, "SFTTraining"),
        ({"data": ()}, "no data"),
        ({"data": (Path("/no/such.parquet"),)}, "/no/such.parquet"),
        ({"reference": Path("/no/model")}, "/no/model"),
    ]
    for change, word in cases:
        job = replace(plain, **change)
        with pytest.raises(TrainingError, match=word) as e:
            train(job, log=tmp_path / "train.log")
        assert e.value.kind == "refused"
        assert not job.output.exists()


def test_no_safetensors_file(tmp_path: Path):
    job = plain_job(tmp_path)
    (job.model / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1")
    with pytest.raises(TrainingError, match=r"model\.safetensors") as e:
        train(job, log=tmp_path / "train.log")
    assert e.value.kind == "refused"


def test_needed_room(tmp_path: Path):
    job = plain_job(tmp_path)
    layer = "model.layers.0.mlp.up_proj.weight"
    (job.model / "model.safetensors").write_bytes(safetensors({layer: [10, 20], "b": [3]}))
    assert parameters(job.model) == 203
    adapters = 2 * (10 + 20)
    fits = {
        "bytes": TrainingFit(optimizer="adamw_8bit"),
        "halved": TrainingFit(lora=LoRAConfig(r=2), publish="bfloat16"),
    }
    # Each epoch is one step. After each but the last a checkpoint may be made, and three are there
    # at a time.
    for epochs, checkpoints in ((1.0, 0), (2.0, 1), (4.0, 3), (40.0, 3)):
        settings = job.settings.model_copy(update={"epochs": epochs})
        trained = replace(job, settings=settings)
        assert needed_bytes(trained) == 4 * 203 * (1 + 3 * checkpoints)
        needed = {name: needed_bytes(replace(trained, fit=fit)) for name, fit in fits.items()}
        assert needed == {
            "bytes": 4 * 203 + (4 + 1 + 1) * 203 * checkpoints,
            "halved": 2 * 203 + 4 * adapters * (1 + 3 * checkpoints),
        }


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    job = plain_job(tmp_path)
    tries = scripted(monkeypatch, job, "finish()")
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    shape = [free // 4, 2]
    (job.model / "model.safetensors").write_bytes(safetensors({"a": shape}))
    with pytest.raises(TrainingError, match="room") as e:
        train(job, log=tmp_path / "train.log", retries=2)
    assert e.value.kind == "refused"
    assert not tries.exists()
