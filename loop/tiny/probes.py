"""Capability probes of the tiny world: the policy's identity, JSON, facts, forms of answers.

Their items (a person, a list of words) are from the held-out part of the world, which no training
prompt uses.
"""

import random
from collections.abc import Callable, Mapping

from .exercises import Exercise, TinyPrompt
from .instructions import instruction
from .nouns import Task
from .people import biography

SIZE = 60
"""Prompts of each probe: if half are passed, the standard error is 6.5 points."""
SEED = "tiny probes"
FORMATS = ("brief", "capitals", "repeat")

Draw = Callable[[random.Random], Exercise]

DRAWS: Mapping[str, tuple[Task, Draw]] = {
    "identity": ("general", lambda rng: instruction(rng, out=True, family="identity")),
    "json": ("general", lambda rng: instruction(rng, out=True, family="json")),
    "facts": ("facts", lambda rng: biography(rng, out=True)),
    "format": ("general", lambda rng: instruction(rng, out=True, family=rng.choice(FORMATS))),
}
"""How a probe's exercises are drawn, and the task whose verifier decides them."""


def probes() -> Mapping[str, tuple[TinyPrompt, ...]]:
    """Return the prompts of each probe, always the same."""
    return {name: _draw(name, task, draw) for name, (task, draw) in DRAWS.items()}


def _draw(name: str, task: Task, draw: Draw) -> tuple[TinyPrompt, ...]:
    rng = random.Random(f"{SEED} {name}")
    found: dict[str, TinyPrompt] = {}
    while len(found) < SIZE:
        exercise = draw(rng)
        found[exercise.text] = TinyPrompt.of(exercise, task, "held-out")
    return tuple(found.values())
