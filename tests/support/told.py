"""A small run written row by row, so that a test knows everything that can be told of it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from examples import CANDIDATE, CHECKPOINT, CRITIQUE, EVALUATION, PAIR, PROMPT, REWARD, SCORE, YIELD
from lpfloop.stores.journal import Journal
from lpfloop.stores.lake import RunWriter, run_folder
from lpfloop.stores.records import (
    AspectRating,
    Candidate,
    Checkpoint,
    Critique,
    Evaluation,
    Message,
    Pair,
    Preference,
    Prompt,
    Reward,
    Score,
    Yield,
)
from lpfloop.stores.schemas import Row

HOSTILE = "\x1b[2J\u202e<script>alert(1)</script>[bold red]"
M0, M1 = "0a" * 32, "1b" * 32
ASPECTS = ("Comprehension", "Completeness", "Readability")


def write_run(
    lake: Path,
    name: str,
    tables: Mapping[int, Mapping[type[Row], Sequence[Row]]],
    *,
    recipe: str | None = None,
    stage: str = "made",
) -> Path:
    """Write the rows of each iteration as one unit each, and return the run's folder."""
    config = {} if recipe is None else {"recipe": {"name": recipe}}
    folder = run_folder(lake, name)
    writer = RunWriter(Journal.create(folder, {"config": json.dumps(config)}))
    for iteration, rows in tables.items():
        unit = f"{name}-{iteration}"
        writer.journal.plan(iteration, stage, unit, lambda unit=unit: [unit])
        writer.commit(unit, rows, {})
    writer.close()
    return folder


def prompt(number: int, **fields: object) -> Prompt:
    """Return a prompt of its own."""
    said = (Message(role="user", content=f"Question {number}?"),)
    return replace(PROMPT, prompt_id=f"prompt-{number}", messages=said, **fields)


def candidate(identity: str, about: Prompt, text: str, **fields: object) -> Candidate:
    """Return a candidate of M_0 in iteration 1."""
    return replace(
        CANDIDATE,
        candidate_id=f"cand-{identity}",
        prompt_id=about.prompt_id,
        policy=M0,
        text=text,
        **fields,
    )


def critique(of: Candidate, *ratings: int | None, **fields: object) -> Critique:
    """Return a critique with these ratings; without any, one that could not be read."""
    aspects = tuple(
        AspectRating(name=name, rating=rating, comment="")
        for name, rating in zip(ASPECTS, ratings, strict=False)
    )
    return replace(
        CRITIQUE,
        critique_id=of.candidate_id.replace("cand", "crit"),
        candidate_id=of.candidate_id,
        prompt_id=of.prompt_id,
        iteration=of.iteration,
        aspects=aspects,
        text=f"Said of {of.candidate_id}.",
        status="scored" if ratings else "no_dictionary",
        **fields,
    )


def reward(of: Candidate, score: float) -> Reward:
    """Return a reward."""
    return replace(
        REWARD, candidate_id=of.candidate_id, prompt_id=of.prompt_id, score=score, status="scored"
    )


def made(about: Prompt, outcome: str, count: int = 0, rule: str = "success_vs_failure") -> Yield:
    """Return what pairing made of a prompt."""
    return replace(YIELD, prompt_id=about.prompt_id, rule=rule, outcome=outcome, made=count)


PAIRED, LACKING = prompt(1, reference=f"five {HOSTILE}"), prompt(2)
HELD_OUT = [prompt(n, split="held-out") for n in range(10, 16)]

GOOD = candidate("good", PAIRED, "The answer is five.")
BAD = candidate("bad", PAIRED, HOSTILE)
BETTER = candidate(
    "better",
    PAIRED,
    "The right answer is five.",
    kind="refinement",
    parent_id=GOOD.candidate_id,
    critique_id="crit-good",
)
FAIR = candidate("fair", LACKING, "Perhaps five.")
MUTE = candidate("mute", LACKING, "No idea.")

MADE_PAIR = replace(
    PAIR,
    pair_id="pair-made",
    chosen_id=BETTER.candidate_id,
    rejected_id=BAD.candidate_id,
    chosen_ratings=(1, 1, 1),
    rejected_ratings=(1, -1, 0),
    chosen_reward=1.5,
    rejected_reward=0.25,
)


PREFERENCE = Preference(
    preference_id="pref-made",
    prompt_id=PAIRED.prompt_id,
    iteration=1,
    first_id=BAD.candidate_id,
    second_id=GOOD.candidate_id,
    annotator="people",
    preferred="second",
    flipped=False,
    order="as_given",
    text="",
    status="scored",
)


def answers(iteration: int, values: Sequence[float]) -> dict[type[Row], list[Row]]:
    """Return the greedy answers of M_t to the held-out prompts, and what they are worth."""
    model = (M0, M1)[iteration]
    greedy = [
        candidate(
            f"greedy-{iteration}-{asked.prompt_id}",
            asked,
            f"It is {'right' if value else 'wrong'}.",
            kind="greedy",
            iteration=iteration,
        )
        for asked, value in zip(HELD_OUT, values, strict=True)
    ]
    scores = [
        replace(
            SCORE,
            iteration=iteration,
            checkpoint_id=model,
            metric=metric,
            prompt_id=answer.prompt_id,
            candidate_id=answer.candidate_id,
            value=number,
        )
        for answer, value in zip(greedy, values, strict=True)
        for metric, number in (("math_accuracy", value), ("mean_length", 10.0 + iteration))
    ]
    number = replace(
        EVALUATION,
        iteration=iteration,
        checkpoint_id=model,
        value=sum(values) / len(values),
        n=len(values),
    )
    return {Candidate: list(greedy), Score: list(scores), Evaluation: [number]}


def told_run(lake: Path, name: str = "told") -> Path:
    """Write a run of one iteration: a prompt that gave a pair, one that gave none, two models."""
    before, after = answers(0, [0, 0, 0, 0, 1, 1]), answers(1, [1, 1, 1, 0, 0, 1])
    started = replace(CHECKPOINT, checkpoint_id=M0)
    trained = replace(
        CHECKPOINT,
        checkpoint_id=M1,
        parent_id=M0,
        reference_id=M0,
        iteration=1,
        recipe="rlrf",
        path=f"checkpoints/{M1}",
        steps=7,
        metrics='{"loss":0.5}',
    )
    drafts = [GOOD, BAD, BETTER, FAIR, MUTE]
    return write_run(
        lake,
        name,
        {
            0: {Prompt: [PAIRED, LACKING, *HELD_OUT], Checkpoint: [started], **before},
            1: {
                **after,
                Candidate: [*drafts, *after[Candidate]],
                Critique: [
                    critique(GOOD, 1, 1, 0),
                    critique(BAD, 1, -1, 0),
                    critique(BETTER, 1, 1, 1),
                    critique(FAIR, 1, 0, 1),
                    critique(MUTE),
                ],
                Reward: [reward(GOOD, 0.5), reward(BAD, 0.25), reward(BETTER, 1.5)],
                Pair: [MADE_PAIR],
                Preference: [PREFERENCE],
                Yield: [made(PAIRED, "paired", 1), made(LACKING, "no_positive")],
                Checkpoint: [trained],
            },
        },
    )
