"""A step's requests and files: functions of the job and the step's number alone."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from lpfloop.configs.engines import EngineConfig, SamplingConfig
from lpfloop.configs.methods import PPOTraining
from lpfloop.configs.schema import RewardConfig
from lpfloop.configs.training import GRPOTraining
from lpfloop.policies.trainers.job import OnlineJob
from lpfloop.policies.trainers.step_files import (
    PromptToSample,
    StepRows,
    draws_of_step,
    planned_steps,
    prompts_of_step,
    read_step,
    sampled_places,
    statistics,
    step_folder,
    write_step,
)
from lpfloop.stores.keys import derive_seed
from lpfloop.stores.records import Statistic
from lpfloop.stores.schemas import from_table

ONLINE = OnlineJob(
    iteration=1,
    identity="stage",
    root_seed=3,
    policy="M",
    model="tiny",
    reward_id="R",
    sampling=SamplingConfig(),
    engine=EngineConfig(),
    reward=RewardConfig(),
)


def rows(value: float) -> StepRows:
    found = statistics(1, "ppo", 1, {"kl": value, "loss": 0.5})
    return StepRows(candidates=(), rewards=(), rollouts=(), statistics=found)


@given(st.integers(1, 30), st.integers(1, 40), st.integers(0, 9))
def test_every_epoch_visits_all_prompts(prompts, rollouts, seed) -> None:
    places = [
        place
        for step in range(1, 7)
        for place in prompts_of_step(prompts, seed, step=step, rollouts=rollouts)
    ]
    assert len(places) == 6 * rollouts
    whole = len(places) // prompts
    for epoch in range(whole):
        assert sorted(places[epoch * prompts : (epoch + 1) * prompts]) == list(range(prompts))
    assert max(Counter(places[whole * prompts :]).values(), default=1) == 1


def test_planned_steps() -> None:
    for prompts, changes, steps in (
        (20_000, {}, 390),
        (1000, {"rollouts": 300, "epochs": 1.0}, 3),
        (10, {"rollouts": 300, "epochs": 1.0}, 1),
        (10, {"max_steps": 7}, 7),
    ):
        assert planned_steps(prompts, PPOTraining(**changes)) == steps


def test_a_step_replaces_an_earlier_attempt(tmp_path) -> None:
    write_step(tmp_path, 1, rows(0.1))
    write_step(tmp_path, 1, rows(0.2))
    found = from_table(Statistic, read_step(tmp_path, 1)[Statistic])
    assert {row.metric: row.value for row in found} == {"kl": 0.2, "loss": 0.5}
    assert [p.name for p in step_folder(tmp_path, 1).parent.iterdir()] == ["0001"]


def test_a_step_of_groups() -> None:
    settings = GRPOTraining(prompts_per_step=3, group=4, batch_size=12, epochs=2)
    assert planned_steps(10, settings) == 6
    # The second step continues after the first; the fourth begins the next epoch.
    for step in (2, 4):
        places = sampled_places(10, 7, step=step, settings=settings)
        assert places[::4] == prompts_of_step(10, 7, step=step, rollouts=3)
        assert all(len(set(places[first : first + 4])) == 1 for first in (0, 4, 8))
    asked = [PromptToSample(prompt_id=f"p{place}", messages=()) for place in places]
    rollouts = draws_of_step(ONLINE, 4, asked)
    assert len({r.candidate_id for r in rollouts}) == len({r.seed for r in rollouts}) == 12
    assert draws_of_step(ONLINE, 4, asked) == rollouts
    assert rollouts[0].seed == derive_seed(3, "draw", rollouts[0].candidate_id)
    # A repeated prompt has new rollouts, with other seeds.
    later = draws_of_step(ONLINE, 5, asked)
    assert not {r.candidate_id for r in later} & {r.candidate_id for r in rollouts}
