"""A step without any reward teaches nothing; three in a row end an online training."""

from pathlib import Path

import pytest
from trainings import PPO, make_online_world, ppo_job, quark_job, rewarded, told_steps

from lpfloop.policies.trainers.job import TrainingError, TrainJob
from lpfloop.policies.trainers.step_files import read_step
from lpfloop.policies.trainers.train_model import train
from lpfloop.stores.records import Reward, Rollout

pytestmark = pytest.mark.model

SCORE = """
from pathlib import Path

def score(prompts, texts):
    calls = Path(__file__).with_name("calls")
    calls.write_text((calls.read_text() if calls.exists() else "") + ".")
    silent = len(calls.read_text()) in {silent}
    return [None if silent else len(text) / 8 for text in texts]
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_online_world(tmp_path_factory.mktemp("online"))


def made(world: Path, folder: Path, method: str, silent: tuple[int, ...]) -> TrainJob:
    code = SCORE.replace("{silent}", str(silent))
    if method == "ppo":
        settings = PPO.model_copy(update={"max_length": 64})
        job = ppo_job(folder, policy=world / "model", reward=world / "reward", settings=settings)
    else:
        job = quark_job(world, folder / "work")
    return rewarded(job, code)


@pytest.mark.parametrize("method", ["ppo", "quark"])
def test_two_steps_without_rewards(world: Path, tmp_path: Path, method: str) -> None:
    job = made(world, tmp_path, method, silent=(2, 3))
    result = train(job, log=tmp_path / "log")
    assert result.steps == 4
    steps = told_steps(job.output)
    assert ["loss" in step for step in steps] == [True, False, False, True]
    rows = read_step(job.output, 2)
    assert rows[Rollout].num_rows == 0
    assert rows[Reward].column("score").null_count == rows[Reward].num_rows > 0


@pytest.mark.parametrize("method", ["ppo", "quark"])
def test_three_steps_without_rewards(world: Path, tmp_path: Path, method: str) -> None:
    job = made(world, tmp_path, method, silent=(2, 3, 4))
    with pytest.raises(TrainingError, match="steps 2 to 4") as told:
        train(job, log=tmp_path / "log")
    assert told.value.kind == "refused"
