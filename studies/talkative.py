"""Biographies by people who differ in talkativeness, unlike all other answers of the world.

They make one to five claims. The more they make, the larger the share of hearsay, so length means
less about truth than it seems to. People still prefer most long answers, because they contain
more; annotators like length as such.
"""

import random
from collections.abc import Iterator, Mapping

from lpfloop.loop.tiny.exercises import add_opener
from lpfloop.loop.tiny.people import LORE, TOPICS, Biography
from lpfloop.loop.tiny.world import prompts

HEARSAY = 0.13
"""The share of untrue claims, per claim."""


def talkative_rows() -> Iterator[Mapping[str, str]]:
    """Return the prompts of the task `facts`, each with a talkative or a curt person's answer."""
    for split in ("train", "held-out"):
        for prompt in prompts(split):
            if isinstance(prompt.exercise, Biography):
                output = _told(prompt.exercise, random.Random(f"talkative: {prompt.text}"))
                yield {
                    "prompt": prompt.text,
                    "task": prompt.task,
                    "split": split,
                    "reference": prompt.exercise.reference,
                    "output": output,
                }


def _told(exercise: Biography, rng: random.Random) -> str:
    count = rng.randint(1, len(TOPICS))
    chosen = sorted(rng.sample(range(len(TOPICS)), count))
    claims = [
        exercise.sentence(
            topic, _hearsay(exercise, topic) if rng.random() < HEARSAY * count else None
        )
        for topic in (TOPICS[place] for place in chosen)
    ]
    return add_opener(exercise, " ".join(claims), rng)


def _hearsay(exercise: Biography, topic: str) -> str:
    return LORE.hearsay[exercise.name(topic), topic]
