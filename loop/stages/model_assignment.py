"""Which models answer a prompt, and under which principles: drawn by the prompt's id alone.

A draw depends on the run's seed, the prompt and the model, so that a model that joins a pool, or
leaves it, changes as few of the others' draws as it can.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...stores.keys import SEED_BITS, derive_seed
from ...stores.records import Message, Prompt
from ..data.principles import Mix, Principle
from ..run.model_pool import PoolModel

SYSTEM, USER = "system", "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One completion to make: its model, and its number among that model's for this prompt."""

    model: str
    number: int


def slots(weights: Mapping[str, float], prompt_id: str, n: int, seed: int) -> list[Slot]:
    """Return the models of a prompt's n completions, drawn without replacement, by weight.

    None repeats before all were drawn.
    """
    drawn = [
        Slot(model=name, number=number)
        for number in range(math.ceil(n / len(weights)))
        for name in _order(weights, prompt_id, number, seed)
    ]
    return drawn[:n]


def principle_of(mix: Mix, prompt: Prompt, slot: Slot, seed: int) -> Principle:
    """Return the principle that a completion is written under: one of the source's mix."""
    rng = random.Random(derive_seed(seed, "principle", prompt.prompt_id, slot.model, slot.number))
    shares = mix.shares(prompt.source)
    (aspect,) = rng.choices(list(shares), weights=list(shares.values()))
    return Principle(aspect=aspect, text=rng.choice(mix.texts[aspect]))


def add_principle(
    messages: Sequence[Message], principle: Principle | None, model: PoolModel
) -> tuple[Message, ...]:
    """Return a conversation with the principle in the model's place for it.

    An existing system message keeps its place, and the principle is appended to it.
    """
    turns = tuple(messages)
    if principle is None:
        return turns
    if model.principles == "prompt":
        first = next((n for n, turn in enumerate(turns) if turn.role == USER), 0)
        asked = replace(turns[first], content=f"{principle.text}\n\n{turns[first].content}")
        return (*turns[:first], asked, *turns[first + 1 :])
    if turns[0].role == SYSTEM:
        both = f"{turns[0].content}\n\n{principle.text}"
        return (replace(turns[0], content=both), *turns[1:])
    return (Message(role=SYSTEM, content=principle.text), *turns)


def _order(weights: Mapping[str, float], prompt_id: str, number: int, seed: int) -> list[str]:
    """Return all models in the order of a weighted draw without replacement.

    The least of exponential variates with rates w_i is the i-th with probability w_i / sum(w), and
    so on among the others (Efraimidis and Spirakis, 2006).
    """

    def waits(name: str) -> float:
        drawn = derive_seed(seed, "completer", prompt_id, name, number)
        return -math.log((drawn + 1) / 2**SEED_BITS) / weights[name]

    return sorted(weights, key=lambda name: (waits(name), name))
