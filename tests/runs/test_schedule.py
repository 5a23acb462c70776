"""`recipe.train` as a schedule: first rejection sampling, then DPO."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from world import Silent, stand_ins, write_prompts

from lpfloop.configs.load import load_config
from lpfloop.configs.recipes import RLRF
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.run.stop import StopSignal

LEARNING = "{learning_rate: 1.0e-4, epochs: 1, batch_size: 8, micro_batch_size: 8}"
SMALL = (
    "policy.engine.kind=scripted",
    "policy.engine.script=scripts:policy",
    "critic.engine.kind=scripted",
    "critic.engine.script=scripts:clear_critic",
    "reward.model=none",
    "prompts.per_iteration=12",
    "prompts.max_test=6",
    "prompts.max_dev=6",
    "prompts.chunk=12",
    "recipe.n=4",
    "recipe.m=1",
    "training.min_pairs=1",
    f"training.sft={LEARNING}",
    f"training.dpo={LEARNING}",
    "verdict.on_regression=continue",
    "alarms.watch=false",
)


def turn(lake: Path, name: str, *overrides: str) -> None:
    prompts = f"prompts.source={write_prompts(lake, 24)}"
    config = load_config("tiny", "rlrf", (*SMALL, prompts, *overrides), {})
    with stand_ins(lake):
        run_loop(Job(config=config, lake=lake, name=name), Silent(), StopSignal())


def test_pairs_after_rejection_sampling(tmp_path):
    turn(tmp_path, "s", "recipe.train=[rs, dpo]", "iterations=2")
    run = open_run(tmp_path, "s")
    assert set(run.scan("demonstrations").collect()["iteration"]) == {1}
    assert set(run.scan("pairs").collect()["iteration"]) == {2}
    first, second = run.scan("checkpoints").sort("iteration").collect().to_dicts()[1:]
    assert second["parent_id"] == second["reference_id"] == first["checkpoint_id"]
    run.close()


@given(words=st.lists(st.sampled_from(["dpo", "rs"]), min_size=1, max_size=5))
def test_last_word_holds(words):
    recipe = RLRF(train=tuple(words))
    told = [recipe.objective(number) for number in range(1, 9)]
    assert told == (words + words[-1:] * 8)[:8]
