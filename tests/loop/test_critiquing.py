"""A policy learns the critic's critiques, and is a critic afterwards."""

from pathlib import Path

import polars as pl
import pytest
from crashing import Silent
from typer.testing import CliRunner

from lpfloop.configs.load import load_config
from lpfloop.critics.feedback import FeedbackCritic
from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.data.receipts import KEPT
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.run.outcomes import NothingToTrainOn
from lpfloop.loop.run.stop import StopSignal
from lpfloop.loop.stages.critique_sft import UNREADABLE, lessons
from lpfloop.stores.lake import run_folder
from lpfloop.stores.records import AspectRating, Candidate, Critique, Message, Prompt

SMALL = (
    "iterations=1",
    "recipe.n=2",
    "prompts.per_iteration=24",
    "prompts.evaluated=6",
    "prompts.deciding=6",
    "prompts.chunk=10",
    "reward.model=none",
    "training.min_pairs=4",
    "training.sft={learning_rate: 1.0e-4, epochs: 1, batch_size: 8, micro_batch_size: 8}",
)
SCRIPTED = (
    "policy.engine.kind=scripted",
    "policy.engine.script=scripts:policy",
    "critic.engine.kind=scripted",
    "critic.engine.script=scripts:critic",
)


def turn(lake: Path, *overrides: str, name: str = "a") -> None:
    config = load_config("tiny", "critique-model", (*SMALL, *overrides), {})
    run_loop(Job(config=config, lake=lake, name=name), Silent(), StopSignal())


def rows(lake: Path, table: str, iteration: int | None = None, name: str = "a") -> pl.DataFrame:
    run = open_run(lake, name)
    frame = run.scan(table, iteration=iteration).collect()
    run.close()
    return frame


# what is a lesson

CRITIC = FeedbackCritic.from_config(load_config("tiny", "rlrf", (), {}).critic)
PROMPT = Prompt(
    prompt_id="p",
    task="math",
    split="train",
    messages=(Message(role="user", content="1 + 1?"),),
    reference=None,
    checks=(),
    source="tests",
)


def draft(name: str) -> Candidate:
    return Candidate(
        candidate_id=name,
        prompt_id="p",
        iteration=1,
        kind="sample",
        parent_id=None,
        critique_id=None,
        policy="m0",
        model="tiny",
        principle=None,
        text=f"Okay. It is {name}.",
        prompt_tokens=3,
        completion_tokens=5,
        finish_reason="stop",
        logprob=None,
        seed=0,
        sampling="{}",
    )


def critique(about: str, text: str, status: str = "scored") -> Critique:
    rating = 1 if status == "scored" else None
    return Critique(
        critique_id=f"of {about}",
        candidate_id=about,
        prompt_id="p",
        iteration=1,
        critic="c",
        aspects=(AspectRating(name="Logical Correctness", rating=rating, comment=""),),
        text=text,
        reference_used=False,
        status=status,
        attempts=1,
    )


def test_a_lesson_asks_what_the_critic_was_asked_and_answers_what_it_said():
    drafts = [draft(name) for name in "abcd"]
    said = 'Logical Correctness: fine. 1\n{"Logical Correctness": 1}'
    given = [
        critique("a", said),
        critique("b", "hm", status="no_dictionary"),
        critique("c", "All is well."),
        critique("d", said),
    ]
    made = lessons(CRITIC, {"p": PROMPT}, drafts, given, 1)
    assert made.fates == {KEPT: ["a", "d"], "no_dictionary": ["b"], UNREADABLE: ["c"]}
    first, second = made.rows
    assert first.prompt == CRITIC.ask(PROMPT, "Okay. It is a.").messages
    assert first.completion == (Message(role="assistant", content=said),)
    assert (first.rank, second.rank) == (0, 1)
    assert first.ratings == (1,)
    assert first.demonstration_id != second.demonstration_id


def test_what_could_not_be_read_is_no_lesson_and_is_counted(tmp_path):
    with pytest.raises(NothingToTrainOn):
        turn(tmp_path, *SCRIPTED, "critic.attempts=1", "training.min_pairs=1000")
    critiques = rows(tmp_path, "critiques", 1)
    scored = critiques.filter(pl.col("status") == "scored")
    assert 0 < scored.height < critiques.height
    learned = rows(tmp_path, "demonstrations", 1)
    assert sorted(learned["candidate_id"]) == sorted(scored["candidate_id"])
    receipts = rows(tmp_path, "receipts", 1).group_by("outcome").agg(pl.col("count").sum())
    counts = dict(receipts.iter_rows())
    assert counts.pop(KEPT) == scored.height
    assert sum(counts.values()) == critiques.height - scored.height
    told = rows(tmp_path, "yields", 1)
    assert told["made"].sum() == learned.height
    assert told.height == 24


@pytest.mark.model
def test_the_trained_policy_is_a_critic_that_another_run_can_name(tmp_path):
    turn(tmp_path, "policy.engine.kind=transformers", "critic.engine.kind=transformers")
    made = rows(tmp_path, "checkpoints", 1)
    folder = run_folder(tmp_path, "a") / made["path"].item()
    settings = (
        *SCRIPTED[:2],
        "critic.engine.kind=transformers",
        "prompts.evaluated=12",
        "prompts.deciding=12",
    )
    done = CliRunner().invoke(
        app,
        [
            *("run", "--config", "tiny", "--variant", "reward-only", "--iterations", "0"),
            *("--run", "b", "--lake", str(tmp_path), "--critic", str(folder)),
            *(f"--set={setting}" for setting in settings),
        ],
    )
    assert done.exit_code == Exit.DONE, done.output
    critiques = rows(tmp_path, "critiques", name="b")
    assert critiques.height == 12 + 12
    first = rows(tmp_path, "critiques", 0)["critic"].unique().item()
    assert critiques["critic"].unique().item() != first
    assert (critiques["status"] == "scored").mean() > 0.8
