"""A lake of two small runs with known rows, to be asked."""

from dataclasses import replace
from pathlib import Path

from examples import CANDIDATE, CRITIQUE, PAIR, PROMPT, REWARD, YIELD
from lpfloop.stores.journal import Journal
from lpfloop.stores.lake import RunWriter, run_folder
from lpfloop.stores.records import (
    AspectRating,
    Candidate,
    Critique,
    Message,
    Pair,
    Prompt,
    Reward,
    Yield,
)

TASKS = ("math", "fact")
ASPECTS = {"math": ("Logical Correctness",), "fact": ("Factuality", "Completeness")}
RATINGS = (1, 0, -1, None)
RUNS = ("a", "b")
PROMPTS, SAMPLES = 6, 4


def make_lake(lake: Path) -> None:
    """Make runs `a` and `b`: 6 prompts, 4 candidates each, in iterations 1 and 2.

    Candidate k of a prompt has rating RATINGS[k] on its first aspect (None: its critique is
    unscored), 1 on others; reward k; 10 (k + 1) tokens; the last is truncated.
    """
    for name in RUNS:
        writer = RunWriter(Journal.create(run_folder(lake, name), {"config": "{}"}))
        prompts = [_prompt(number) for number in range(PROMPTS)]
        _commit(writer, 0, "prompts", {Prompt: prompts})
        for iteration in (1, 2):
            for kind, rows in _rows(prompts, iteration).items():
                _commit(writer, iteration, kind.__name__.lower(), {kind: rows})
        writer.journal.record("end", {"why": "test"})
        writer.close()


def _commit(writer, iteration, stage, tables):
    key = f"{iteration}-{stage}"
    writer.journal.plan(iteration, stage, key, lambda: [key])
    writer.commit(key, tables, {"tokens": 7.0})
    writer.flush()


def _prompt(number):
    messages = (Message(role="user", content=f"Question {number}?"),)
    return replace(PROMPT, prompt_id=f"prompt-{number}", task=TASKS[number % 2], messages=messages)


def _rows(prompts, iteration):
    each = [(prompt, k) for prompt in prompts for k in range(SAMPLES)]
    return {
        Candidate: [_candidate(prompt, k, iteration) for prompt, k in each],
        Critique: [_critique(prompt, k, iteration) for prompt, k in each],
        Reward: [
            replace(REWARD, score=float(k), status="scored", **_place(prompt, k, iteration))
            for prompt, k in each
        ],
        Pair: [_pair(prompt, iteration) for prompt in prompts],
        Yield: [
            replace(YIELD, prompt_id=prompt.prompt_id, iteration=iteration) for prompt in prompts
        ],
    }


def _place(prompt, k, iteration):
    return {
        "candidate_id": f"cand-{prompt.prompt_id}-{iteration}-{k}",
        "prompt_id": prompt.prompt_id,
        "iteration": iteration,
    }


def _candidate(prompt, k, iteration):
    return replace(
        CANDIDATE,
        kind="refinement" if k == 1 else "sample",
        text=f"Answer {k}: " + "word " * k,
        completion_tokens=10 * (k + 1),
        finish_reason="length" if k == SAMPLES - 1 else "stop",
        **_place(prompt, k, iteration),
    )


def _critique(prompt, k, iteration):
    first, *rest = ASPECTS[prompt.task]
    aspects = (
        AspectRating(name=first, rating=RATINGS[k], comment=f"comment {k}"),
        *(AspectRating(name=name, rating=1, comment="") for name in rest),
    )
    scored = RATINGS[k] is not None
    return replace(
        CRITIQUE,
        critique_id=f"crit-{prompt.prompt_id}-{iteration}-{k}",
        aspects=aspects if scored else (),
        text=f"critique {k} \u202e\x1b[31m of {prompt.prompt_id}",
        status="scored" if scored else "unreadable",
        **_place(prompt, k, iteration),
    )


def _pair(prompt, iteration):
    ids = [f"cand-{prompt.prompt_id}-{iteration}-{k}" for k in range(SAMPLES)]
    return replace(
        PAIR,
        pair_id=f"pair-{prompt.prompt_id}-{iteration}",
        prompt_id=prompt.prompt_id,
        iteration=iteration,
        chosen_id=ids[0],
        rejected_id=ids[2],
        chosen_reward=2.0 * iteration,
        rejected_reward=1.0,
        rank=int(prompt.prompt_id[-1]) % 2,
    )
