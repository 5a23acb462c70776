"""Runs with known rows of every kind that studies read, without a model."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

from examples import (
    CANDIDATE,
    DEMONSTRATION,
    EVALUATION,
    PAIR,
    PROMPT,
    REWARD,
    REWARD_MODEL,
    ROLLOUT,
    SCORE,
    STATISTIC,
)
from lpfloop.loop.tiny import human
from lpfloop.loop.tiny.world import prompts
from lpfloop.stores.journal import Journal
from lpfloop.stores.lake import RunWriter, run_folder
from lpfloop.stores.records import (
    Candidate,
    Demonstration,
    Evaluation,
    Message,
    Pair,
    Prompt,
    Reward,
    RewardModel,
    Rollout,
    Score,
    Statistic,
)

HELD_OUT, TRAIN, SAMPLES, STEPS = 12, 6, 6, 24
COUNTS = (1, 2, 4, 8, 16, 32)
MEASURED = ("win_rate", "true_score", "reward", "mean_length", "math_accuracy")
PROBES = ("identity", "json")


def make_run(lake: Path, name: str) -> None:
    """Make a run that has sampled, scored, optimised and measured; its name decides its numbers."""
    rng = Random(name)
    writer = RunWriter(Journal.create(run_folder(lake, name), {"config": "{}"}))
    asked = [*_prompts("held-out", HELD_OUT), *_prompts("train", TRAIN)]
    answers = [row for prompt in asked for row in _answers(prompt, rng)]
    of_train = answers[HELD_OUT * SAMPLES :]
    _commit(writer, 0, "prompts", {Prompt: asked})
    _commit(writer, 1, "sample:held-out", {Candidate: answers[: HELD_OUT * SAMPLES]})
    _commit(writer, 1, "sample:variance", {Candidate: of_train})
    _commit(writer, 1, "reward", {Reward: [_reward(row, rng) for row in answers]})
    _commit(writer, 1, "ppo", {Rollout: list(_rollouts(of_train, rng))})
    _commit(writer, 1, "train_reward", {RewardModel: [_reward_model(rng)]})
    _commit(writer, 1, "statistics", {Statistic: list(_statistics(rng))})
    _commit(writer, 1, "pairs", {Pair: _pairs()})
    _commit(writer, 1, "learned", {Demonstration: [_demonstration(row) for row in of_train[:3]]})
    _commit(writer, 1, "curve", {Evaluation: list(_curve(rng))})
    for iteration in (0, 1):
        _commit(writer, iteration, "assess", {Score: list(_scores(asked, iteration, rng))})
    writer.journal.record("end", "done: test")
    writer.close()


def make_empty_run(lake: Path, name: str) -> None:
    """Make a run that ended before it measured anything."""
    writer = RunWriter(Journal.create(run_folder(lake, name), {"config": "{}"}))
    _commit(writer, 0, "prompts", {Prompt: [*_prompts("held-out", 2)]})
    writer.journal.record("end", "NothingToTrainOn: test")
    writer.close()


def _commit(writer, iteration, stage, tables):
    key = f"{iteration}-{stage}"
    writer.journal.plan(iteration, stage, key, lambda: [key])
    writer.commit(key, tables, {"tokens": 7.0})
    writer.flush()


def _prompts(split, count):
    for number, tiny in enumerate(prompts(split)[:count]):
        asked = (Message(role="user", content=tiny.text),)
        identity = f"{split}-{number}"
        yield replace(PROMPT, prompt_id=identity, task=tiny.task, split=split, messages=asked)


def _answers(prompt, rng) -> Iterator[Candidate]:
    instruction = prompt.messages[-1].content
    for number in range(SAMPLES):
        known = human.exercise_of(instruction)
        text = (known.careful if number % 2 else known.careless)(rng) + " more" * number
        yield replace(
            CANDIDATE,
            candidate_id=f"{prompt.prompt_id}-{number}",
            prompt_id=prompt.prompt_id,
            text=text,
            completion_tokens=len(text.split()),
        )


def _reward(row, rng):
    score = len(row.text.split()) / 10 + rng.random()
    own = {"candidate_id": row.candidate_id, "prompt_id": row.prompt_id}
    return replace(REWARD, score=score, status="scored", **own)


def _rollouts(answers, rng):
    for step in range(1, STEPS + 1):
        for row in answers[:4]:
            reward = step / STEPS + rng.random()
            own = {"candidate_id": row.candidate_id, "prompt_id": row.prompt_id}
            yield replace(ROLLOUT, step=step, reward=reward, kl=step * rng.random(), **own)


def _reward_model(rng):
    return replace(REWARD_MODEL, metrics=json.dumps({"held_out/accuracy": 0.5 + rng.random() / 4}))


def _statistics(rng):
    for step in range(1, 13):
        for metric in ("chosen/mean", "rejected/mean", "chosen/sd"):
            own = {"step": step, "metric": metric, "value": 0.1 + rng.random()}
            yield replace(STATISTIC, method="reward", **own)


def _pairs():
    rules = ("preferred", "preferred", "preferred/balanced")
    return [replace(PAIR, pair_id=f"pair-{n}", rule=rule) for n, rule in enumerate(rules)]


def _demonstration(row):
    own = {"candidate_id": row.candidate_id, "prompt_id": row.prompt_id}
    return replace(DEMONSTRATION, demonstration_id=f"demo-{row.candidate_id}", **own)


def _curve(rng):
    for n in COUNTS:
        for metric in ("reward", "true_score"):
            own = {"metric": f"expected_{metric}", "value": n**0.5 + rng.random()}
            yield replace(EVALUATION, iteration=1, benchmark=f"best-of-{n}", **own)


def _scores(asked, iteration, rng):
    benchmarks = ["held-out", *(f"best-of-{n}" for n in COUNTS if iteration)]
    for prompt in asked[:HELD_OUT]:
        for benchmark in benchmarks:
            for metric in MEASURED:
                own = {"benchmark": benchmark, "metric": metric, "value": rng.random()}
                yield _score(prompt, iteration, own)
        for probe in PROBES:
            own = {"benchmark": f"probe:{probe}", "metric": "passed", "value": rng.randint(0, 1)}
            yield _score(prompt, iteration, own)


def _score(prompt, iteration, own):
    identity = f"{own['benchmark']}-{prompt.prompt_id}-{iteration}"
    return replace(
        SCORE, iteration=iteration, candidate_id=identity, prompt_id=prompt.prompt_id, **own
    )
