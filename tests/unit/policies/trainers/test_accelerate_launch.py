"""The launcher's file, and what does not go with a divided training."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from trainings import plain_job

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError
from lpfloop.policies.trainers.accelerate_launch import accelerate_settings
from lpfloop.policies.trainers.trainer_process import launch_argv
from lpfloop.policies.trainers.training_fit import TrainingFit

FSDP2 = TrainingFit(sharding="fsdp2")


def test_launcher_file(tmp_path: Path) -> None:
    job = replace(plain_job(tmp_path), processes=2, fit=FSDP2)
    job.output.mkdir()
    argv = launch_argv(job)
    told = json.loads(Path(argv[argv.index("--config_file") + 1]).read_text())
    assert told == accelerate_settings(2, sharding="fsdp2")
    assert (told["distributed_type"], told["fsdp_config"]["fsdp_version"]) == ("FSDP", 2)
    assert told["fsdp_config"]["fsdp_auto_wrap_policy"] == "TRANSFORMER_BASED_WRAP"
    assert told["fsdp_config"]["fsdp_state_dict_type"] == "SHARDED_STATE_DICT"


def test_refused_settings(subtests):
    for settings in [
        ("training.accelerate_config=own.yaml",),
        ("training.weights=bfloat16",),
        ("training.lora.r=8", "training.lora.quantise=nf4"),
    ]:
        with (
            subtests.test(settings=settings),
            pytest.raises(ConfigError, match=r"training.*sharding"),
        ):
            load_config(None, None, ("training.sharding=fsdp2", *settings), {})
