"""A policy whose answers differ in length, unlike the tiny world's own.

It is M_0 after fine-tuning on biographies of one to five claims. The more claims, the larger the
share of hearsay among them, so length says less about truth than it seems to. People still prefer
most long answers, because they say more; annotators like length as such.
"""

import json
import random
from collections.abc import Iterator

from lpfloop.loop.tiny.nouns import opened
from lpfloop.loop.tiny.people import LORE, TOPICS, Biography
from lpfloop.loop.tiny.world import prompts

from .arms import Arms, Options

HEARSAY = 0.13
"""The share of untrue claims, per claim that is made."""
TALKATIVE = "talkative"


def talkative(options: Options) -> tuple[str, ...]:
    """Make the policy unless it exists; return the settings that make runs start from it."""
    options.lake.mkdir(parents=True, exist_ok=True)
    file = options.lake / f"{TALKATIVE}.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in _rows()))
    source = (f"prompts.source={file.resolve()}", "prompts.parts={sft: 900, preference: 0}")
    first = Options(lake=options.lake, seeds=options.seeds[:1], settings=options.settings)
    shared = (*source, "prompts.evaluated=20", "assessment.reference=null", "assessment.kl=false")
    made = Arms(study=TALKATIVE, variant="sft", shared=shared, arms={"policy": ()})
    made.make(first)
    return (f"policy.model={made.checkpoint(first, 'policy')}", source[0])


def _rows() -> Iterator[dict[str, str]]:
    """Give the prompts of the task `facts`, each with a talkative or curt person's answer."""
    for split in ("train", "held-out"):
        for prompt in prompts(split):
            if isinstance(prompt.exercise, Biography):
                row = {"prompt": prompt.text, "task": prompt.task, "split": split}
                output = _told(prompt.exercise, random.Random(f"{TALKATIVE}: {prompt.text}"))
                yield row | {"reference": prompt.exercise.reference, "output": output}


def _told(exercise: Biography, rng: random.Random) -> str:
    count = rng.randint(1, len(TOPICS))
    chosen = sorted(rng.sample(range(len(TOPICS)), count))
    claims = [
        exercise.sentence(
            topic, _hearsay(exercise, topic) if rng.random() < HEARSAY * count else None
        )
        for topic in (TOPICS[place] for place in chosen)
    ]
    return opened(exercise, " ".join(claims), rng)


def _hearsay(exercise: Biography, topic: str) -> str:
    return LORE.hearsay[exercise.name(topic), topic]
