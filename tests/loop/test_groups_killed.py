"""GRPO, RLOO and online DPO by the real trainer, killed while judging and while training."""

import os
import signal
from functools import partial
from pathlib import Path

import crashing
import pytest
from crashing import (
    KILLED,
    Attempt,
    calls,
    look,
    loop,
    quick_folder,
    seen,
    stand_ins,
    write_prompts,
)

import lpfloop.loop.stages.online_steps
import lpfloop.loop.stages.publish
from lpfloop.configs.load import load_config
from lpfloop.configs.schema import RunConfig
from lpfloop.policies.trainers.reward_exchange import JudgedAnswer, write_judged
from lpfloop.policies.trainers.train_model import train

METHODS = {"grpo": "grpo", "rloo": "rloo", "online-dpo": "online_dpo"}
LONGEST_S = 1800.0
"""Seconds that a run with real trainings may take on a busy machine."""
SCRIPTED = ("critic.engine.kind=scripted", "critic.engine.script=crashing:critic")
REAL = (
    "critic.engine.kind=transformers",
    # What the tiny critic says of prompts that it does not know is the same of all answers.
    "reward.model=tiny",
    "recipe.rewards.reward=0.5",
)


def config(prompts: Path, variant: str, *overrides: str) -> RunConfig:
    """Return the configuration of two steps of four answers of the tiny policy."""
    method = f"training.{METHODS[variant]}"
    settings = (
        "policy.engine.kind=transformers",
        "policy.sampling.max_tokens=12",
        "reward.model=none",
        "assessment.kl=false",
        "prompts.held_out_share=0.25",
        "prompts.dev_share=0",
        "prompts.per_iteration=6",
        "prompts.evaluated=2",
        "prompts.chunk=2",
        f"prompts.source={prompts}",
        "policy.model=tiny",
        "critic.model=tiny",
        f"{method}.prompts_per_step=2",
        f"{method}.group=2",
        f"{method}.batch_size=2",
        f"{method}.micro_batch_size=2",
        f"{method}.max_steps=2",
        f"{method}.max_length=128",
        "iterations=1",
    )
    return load_config("tiny", variant, (*settings, *overrides), {})


def really(lake: Path, *, config: RunConfig, dies_judging: bool = False) -> None:
    """Turn the loop with the real trainer; die where a second step's judgements were written."""

    def written(work: Path, step: int, judged: list[JudgedAnswer]) -> None:
        write_judged(work, step, judged)
        if step == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    if dies_judging:
        lpfloop.loop.stages.online_steps.write_judged = written
    with stand_ins(lake):
        lpfloop.loop.stages.publish.train = train
        loop(lake, config=config)
    look(lake)


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.crash
@pytest.mark.parametrize(
    ("variant", "critic"),
    [("grpo", SCRIPTED), ("rloo", SCRIPTED), ("online-dpo", SCRIPTED), ("grpo", REAL)],
    ids=["grpo", "rloo", "online-dpo", "grpo by the tiny critic"],
)
def test_killed_while_judging_and_while_training_it_ends_with_the_same_rows(
    tmp_path: Path, variant: str, critic: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crashing, "HANGS_S", LONGEST_S)
    settings = config(write_prompts(tmp_path), variant, *critic)
    with quick_folder(tmp_path) as lake:
        Attempt(lake=lake, work=partial(really, config=settings)).finish()
        whole, asked = seen(lake), calls(lake)
    assert whole.rows["rollouts"] > 0
    with quick_folder(tmp_path) as lake:
        judging = partial(really, config=settings, dies_judging=True)
        assert Attempt(lake=lake, work=judging).start() == KILLED
        # It makes both steps again; the first is answered from its rows, the second from replies.
        training = partial(really, config=settings)
        assert Attempt(lake=lake, work=training, points={"stage.unit#1": "kill"}).start() == KILLED
        Attempt(lake=lake, work=training).finish()
        assert seen(lake) == whole
        assert calls(lake) == asked
