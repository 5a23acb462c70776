"""Device settings of a training: in its job and in keys, but only if set."""

from dataclasses import replace
from pathlib import Path

from trainings import plain_job

from lpfloop.configs.training import LoRAConfig, TrainingConfig
from lpfloop.policies.trainers.job import read_job, write_job
from lpfloop.policies.trainers.training_fit import PLAIN, TrainingFit, fit_of, fit_params

CHANGED = TrainingFit(
    lora=LoRAConfig(r=4, targets=("q_proj",)),
    optimizer="adamw_8bit",
    gradient_checkpointing="never",
    attention="eager",
    liger=True,
    publish="bfloat16",
)


def test_job_round_trip(subtests, tmp_path: Path):
    plain = plain_job(tmp_path)
    for fit in [CHANGED, TrainingFit(sharding="fsdp2")]:
        with subtests.test(fit=fit):
            job = replace(plain, fit=fit)
            write_job(job)
            assert read_job(job.folder("job.json")).fit == replace(fit, devices="auto")


def test_fit_of() -> None:
    said = {"lora": {"r": 4, "targets": ["q_proj"]}, "publish": "bfloat16", "devices": [0, 2]}
    fit = fit_of(TrainingConfig.model_validate(said))
    assert fit == TrainingFit(lora=CHANGED.lora, publish="bfloat16", devices=(0, 2))


def test_not_in_key(subtests):
    for said in [
        {},
        {"lora": {"alpha": 32.0}},
        {"gradient_checkpointing": "always", "attention": "sdpa", "liger": True},
        {"sharding": "fsdp2", "devices": [1]},
    ]:
        with subtests.test(said=said):
            assert fit_params(fit_of(TrainingConfig.model_validate(said))) == {}


def test_in_key(subtests):
    for changed in [
        {"lora": LoRAConfig(r=4)},
        {"optimizer": "adamw_8bit"},
        {"publish": "bfloat16"},
    ]:
        with subtests.test(changed=changed):
            params = fit_params(replace(PLAIN, **changed))  # pyright: ignore[reportArgumentType]
            assert list(params) == ["fit"]
