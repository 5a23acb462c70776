"""`recipe.train` as a schedule: rejection sampling first, DPO after it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpfloop.configs.load import load_config
from lpfloop.configs.recipes import RLRF
from lpfloop.configs.schema import ConfigError
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.recipes.smoke_needs import trainings
from lpfloop.loop.run.outcomes import NothingToTrainOn
from lpfloop.loop.run.stop import StopSignal
from lpfloop.stores.lake import RunReader, run_folder

LEARNING = "{learning_rate: 1.0e-4, epochs: 1, batch_size: 8, micro_batch_size: 8}"
SMALL = (
    "policy.engine.kind=scripted",
    "policy.engine.script=scripts:policy",
    "critic.engine.kind=scripted",
    "critic.engine.script=scripts:clear_critic",
    "reward.model=none",
    "prompts.per_iteration=24",
    "prompts.evaluated=6",
    "prompts.deciding=6",
    "prompts.chunk=12",
    "recipe.n=4",
    "recipe.m=1",
    "training.min_pairs=4",
    f"training.sft={LEARNING}",
    f"training.dpo={LEARNING}",
    "verdict.on_regression=continue",
    "alarms.watch=false",
)


class Silent:
    """A reporter that says nothing."""

    def begin(self, iteration, stage, *, planned, done):
        pass

    def advance(self, iteration, stage, advance):
        pass

    def end(self, iteration, stage):
        pass

    def note(self, text):
        pass


def turn(lake: Path, name: str, *overrides: str) -> None:
    config = load_config("tiny", "rlrf", (*SMALL, *overrides), {})
    run_loop(Job(config=config, lake=lake, name=name), Silent(), StopSignal())


def keys(lake: Path, name: str) -> set[tuple[str, str]]:
    """Return the units of a run, with the hash of what is in them."""
    reader = RunReader(run_folder(lake, name))
    found = {(part.unit, part.sha256) for part in reader.journal.parts()}
    reader.close()
    return found


@pytest.mark.model
def test_the_second_iteration_trains_on_pairs_after_rejection_sampling(tmp_path):
    turn(tmp_path, "s", "recipe.train=[rs, dpo]", "iterations=2")
    run = open_run(tmp_path, "s")
    assert set(run.scan("demonstrations").collect()["iteration"]) == {1}
    assert set(run.scan("pairs").collect()["iteration"]) == {2}
    trained = run.scan("statistics").select("iteration", "method").unique().collect()
    assert sorted(trained.rows()) == [(1, "sft"), (2, "dpo")]
    first, second = run.scan("checkpoints").sort("iteration").collect().to_dicts()[1:]
    assert second["parent_id"] == second["reference_id"] == first["checkpoint_id"]
    run.close()


def test_a_schedule_of_one_word_makes_the_units_of_the_word(tmp_path):
    for name, train in (("word", "dpo"), ("list", "[dpo, dpo]"), ("first", "[dpo, rs]")):
        with pytest.raises(NothingToTrainOn):
            turn(tmp_path, name, f"recipe.train={train}", "training.min_pairs=1000000")
    assert keys(tmp_path, "word") == keys(tmp_path, "list") == keys(tmp_path, "first")


@given(words=st.lists(st.sampled_from(["dpo", "rs"]), min_size=1, max_size=5))
def test_the_last_word_holds_for_all_that_follow(words):
    recipe = RLRF(train=tuple(words))
    told = [recipe.objective(number) for number in range(1, 9)]
    assert told == (words + words[-1:] * 8)[:8]


@pytest.mark.parametrize("value", ["ppo", "[]", "[rs, ppo]", "'rs, dpo'", "null"])
def test_what_is_no_schedule_is_refused_in_one_sentence(value: str):
    with pytest.raises(ConfigError, match=r"recipe\.train: must be dpo or rs, or a list") as told:
        load_config("tiny", "rlrf", [f"recipe.train={value}"], {})
    assert "\n" not in str(told.value)


def test_a_run_gets_ready_for_the_trainings_that_it_comes_to():
    found = [
        trainings(
            load_config("tiny", "rlrf", ["recipe.train=[rs, dpo]", f"iterations={count}"], {})
        )
        for count in (1, 2)
    ]
    assert found == [("sft",), ("sft", "dpo")]
