"""How a training fits on its devices: in its job and in keys, and not while nothing is set."""

from dataclasses import replace
from pathlib import Path

import pytest

from lpfloop.configs.training import LoRAConfig, TrainingConfig
from lpfloop.policies.trainers.trainer_job import job_json, read_job, write_job
from lpfloop.policies.trainers.training_fit import PLAIN, TrainingFit, fit_of, fit_params
from tests.support.trainings import plain_job

CHANGED = TrainingFit(
    lora=LoRAConfig(r=4, targets=("q_proj",)),
    weights="bfloat16",
    optimizer="adamw_8bit",
    recompute="never",
    attention="eager",
    liger=True,
    publish="bfloat16",
)


@pytest.mark.parametrize("fit", [CHANGED, TrainingFit(sharding="fsdp2")])
def test_a_job_keeps_how_it_fits(tmp_path: Path, fit: TrainingFit) -> None:
    job = replace(plain_job(tmp_path), fit=fit)
    write_job(job)
    assert read_job(job.folder("job.json")).fit == replace(fit, devices="auto")


def test_the_job_of_a_plain_training_is_as_it_was_before_adapters(tmp_path: Path) -> None:
    text = job_json(plain_job(tmp_path))
    assert '"fit"' not in text
    assert '"dtype": "float32"' in text


def test_a_configuration_fits_as_it_says() -> None:
    said = {"lora": {"r": 4, "targets": ["q_proj"]}, "weights": "bfloat16", "devices": [0, 2]}
    fit = fit_of(TrainingConfig.model_validate(said))
    assert fit == TrainingFit(lora=CHANGED.lora, weights="bfloat16", devices=(0, 2))


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"lora": {"alpha": 32.0}},
        {"recompute": "always", "attention": "sdpa", "liger": True},
        {"sharding": "fsdp2", "devices": [1]},
    ],
)
def test_what_changes_no_weight_is_in_no_key(said: dict[str, object]) -> None:
    assert fit_params(fit_of(TrainingConfig.model_validate(said))) == {}


@pytest.mark.parametrize(
    "changed",
    [
        {"lora": LoRAConfig(r=4)},
        {"weights": "bfloat16"},
        {"optimizer": "adamw_8bit"},
        {"publish": "bfloat16"},
    ],
)
def test_what_changes_weights_is_in_their_keys(changed: dict[str, object]) -> None:
    params = fit_params(replace(PLAIN, **changed))  # pyright: ignore[reportArgumentType]
    assert list(params) == ["fit"]
