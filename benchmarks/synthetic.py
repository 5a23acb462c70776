"""A synthetic iteration: rows of realistic length, and a run for them."""

import random
from typing import Any

CANDIDATES = 30
CHUNK = 64
ASPECTS = ("Logical Correctness", "Completeness", "Factuality", "Relevance", "Clarity")
WORDS, VOCABULARY = 400_000, 8_000
STAGES = {"Candidate": "sample", "Critique": "critique:sample", "Reward": "reward:sample"}
"""The stage of each record type's rows."""


def text_source() -> str:
    """Return a long text to cut answers from, with Zipf's word frequencies."""
    draw = random.Random(0)
    letters = "etaoinshrdlucmfwypvbgkqjxz"
    words = ["".join(draw.choices(letters, k=draw.randint(1, 10))) for _ in range(VOCABULARY)]
    weights = [1 / rank for rank in range(1, VOCABULARY + 1)]
    return " ".join(draw.choices(words, weights, k=WORDS))


class Synthetic:
    """The rows of a synthetic iteration, unit by unit."""

    def __init__(self, prompts: int) -> None:
        self.prompts = prompts
        self.source = text_source()

    @property
    def chunks(self) -> list[range]:
        """The prompts of each unit, by number."""
        return [
            range(first, min(first + CHUNK, self.prompts))
            for first in range(0, self.prompts, CHUNK)
        ]

    def text(self, draw: random.Random, length: int) -> str:
        """Return a text of about `length` characters."""
        size = int(length * draw.uniform(0.5, 1.5))
        start = draw.randrange(len(self.source) - size)
        return self.source[start : start + size]

    def rows(self, chunk: range) -> dict[type, list[Any]]:
        """Return the rows of one unit, by record type."""
        from lpfloop.stores.records import Candidate, Critique, Reward

        draw = random.Random(f"unit {chunk.start}")
        made = [self.judged(draw, p, k) for p in chunk for k in range(CANDIDATES)]
        candidates, critiques, rewards = (list(rows) for rows in zip(*made, strict=True))
        return {Candidate: candidates, Critique: critiques, Reward: rewards}

    def judged(self, draw: random.Random, prompt: int, number: int) -> tuple[Any, Any, Any]:
        """Return a candidate with its critique and its reward."""
        from lpfloop.stores.records import AspectRating, Candidate, Critique, Reward

        candidate_id, prompt_id = f"cand-{draw.getrandbits(128):032x}", prompt_name(prompt)
        candidate = Candidate(
            candidate_id=candidate_id,
            prompt_id=prompt_id,
            iteration=1,
            kind="sample",
            parent_id=None,
            critique_id=None,
            policy="0" * 64,
            model="synthetic",
            principle=None,
            text=self.text(draw, 1500),
            prompt_tokens=100,
            completion_tokens=300 + number,
            finish_reason="stop",
            logprob=-draw.uniform(50, 500),
            seed=draw.getrandbits(53),
            sampling='{"max_tokens":512,"temperature":1.0,"top_p":1.0}',
        )
        aspects = tuple(
            AspectRating(
                name=name,
                rating=draw.choices((-1, 0, 1), (1, 2, 7))[0],
                comment=self.text(draw, 60),
            )
            for name in ASPECTS
        )
        critique = Critique(
            critique_id=f"crit-{draw.getrandbits(128):032x}",
            candidate_id=candidate_id,
            prompt_id=prompt_id,
            iteration=1,
            critic="synthetic",
            aspects=aspects,
            text=self.text(draw, 700),
            reference_used=False,
            status="scored",
            attempts=1,
        )
        reward = Reward(
            candidate_id=candidate_id,
            prompt_id=prompt_id,
            iteration=1,
            reward_model="synthetic",
            score=draw.gauss(0, 1),
            status="scored",
        )
        return candidate, critique, reward


def prompt_name(number: int) -> str:
    """Return the id of a prompt."""
    return f"prompt-{random.Random(number).getrandbits(128):032x}"


def prompt_rows(chunk: range) -> list[Any]:
    """Return the prompts of a unit."""
    from lpfloop.stores.records import Message, Prompt

    return [
        Prompt(
            prompt_id=prompt_name(number),
            task=("math", "facts", "general")[number % 3],
            split="train",
            messages=(Message(role="user", content=f"Explain the number {number}."),),
            reference=None,
            checks=(),
            source="synthetic",
        )
        for number in chunk
    ]


def plan(store: Any, data: Synthetic) -> None:
    """Plan the stages like the loop, and commit the prompts."""
    from lpfloop.stores.keys import digest
    from lpfloop.stores.records import Prompt

    judged = [(1, stage) for stage in STAGES.values()]
    for iteration, stage in ((0, "prompts"), *judged, (1, "pair")):
        keys = [digest([stage, number]) for number in range(len(data.chunks))]
        store.journal.plan(iteration, stage, digest(stage), lambda keys=keys: keys)
    for number, chunk in enumerate(data.chunks):
        store.commit(
            store.journal.key(0, "prompts", number), {Prompt: prompt_rows(chunk)}, {"rows": 1}
        )
    store.flush()


def configuration() -> str:
    """Return the configuration of a run without models."""
    from lpfloop.configs.describe import resolve_config
    from lpfloop.configs.load import load_config
    from lpfloop.stores.keys import canonical_json

    overrides = ("policy.engine.kind=scripted", "critic.engine.kind=scripted", "reward.model=none")
    return canonical_json(resolve_config(load_config("tiny", "rlrf", overrides, {})))


def run_name(prompts: int) -> str:
    """Return the name of the run with this number of prompts."""
    return f"synthetic-{prompts}"
