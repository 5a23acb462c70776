"""The verb that completes prompts with a pool of models, each under a principle.

Every model has a separate stage over the same chunks of prompts, so changing one model reruns only
its stage. Which models answer a prompt, and under which principles, is drawn by the prompt's id
alone: by the run's seed, the prompt and the model, so that a model that joins a pool, or leaves it,
changes as few of the others' draws as it can.
"""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...configs.load import semantic
from ...configs.recipes import Completed
from ...stores.journal_reader import Unit
from ...stores.keys import SEED_BITS, Json, derive_seed
from ...stores.records import Candidate, Message, Prompt
from ..data.principles import Mix, Principle
from ..run.completers import Completers, PoolModel
from ..run.handles import Prompts, Rows
from ..run.iteration import Iteration
from ..run.run import Verb, Work
from .sample import Draw, DrawnBy, draw_candidates, draws

COMPLETE = Verb("complete")
SYSTEM, USER = "system", "user"


def complete(it: Iteration, prompts: Prompts, *, n: int) -> Rows[Candidate]:
    """y_i ~ pi_i(principle_i, x): commit n completions a prompt, of as many models as there are.

    Raises:
        RuntimeError: if the run was opened as one that completes by no pool.
    """
    it.require(Completed, "complete")
    completers = it.run.completers
    if completers is None:
        raise RuntimeError("this run was opened without a pool of models: see `completers_of`")
    # Stages with the same model are adjacent, so that it is loaded once; the policy comes first,
    # since it may be loaded already.
    models = sorted(completers.pool.models, key=lambda m: (not m.is_policy, m.model or ""))
    stages = tuple(
        stage for model in models for stage in _complete(it, completers, model, prompts, n).stages
    )
    return Rows(row_type=Candidate, stages=stages, called=COMPLETE.name)


def _complete(
    it: Iteration, completers: Completers, model: PoolModel, prompts: Prompts, n: int
) -> Rows[Candidate]:
    """Plan and run the stage of one model: the completions that it was drawn for."""
    served = it.policy if model.is_policy else it.run.models.completers[model.name]
    sampling, mix = model.sampling_of(it.run.config.policy.sampling), completers.mix_of(model)
    weights, seed = completers.pool.weights, it.run.config.seed
    pending = Work(
        verb=COMPLETE,
        params={
            "model": model.name,
            "served": served.params,
            "sampling": semantic(sampling),
            "principles": None if mix is None else [model.principles, mix.digest],
            "weights": dict(weights),
            "n": n,
        },
        upstream=(prompts.identity,),
        reads=prompts.each_key,
    )

    def draws_of(prompt: Prompt, identity: Json) -> Iterator[Draw]:
        drawn = slots(weights, prompt.prompt_id, n, seed)
        own = [slot for slot in drawn if slot.model == model.name]
        for draw, slot in zip(draws(it, identity, prompt, count=len(own)), own, strict=True):
            if mix is None:
                yield draw
            else:
                principle = principle_of(mix, prompt, slot, seed)
                messages = add_principle(prompt.messages, principle, model)
                yield replace(draw, messages=messages, principle=str(principle))

    def work(unit: Unit) -> list[Draw]:
        chunk = prompts.chunks[unit.chunk]
        return [draw for prompt in chunk for draw in draws_of(prompt, unit.key)]

    label = f"{COMPLETE.name}:{model.name}"
    by = DrawnBy(served, model.name)
    return draw_candidates(it, label, "sample", sampling, pending, work, by)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One completion to make: its model, and its number among that model's for this prompt."""

    model: str
    number: int


def slots(weights: Mapping[str, float], prompt_id: str, n: int, seed: int) -> list[Slot]:
    """Return the models of a prompt's n completions, drawn without replacement, by weight.

    None repeats before all were drawn. The least of exponential variates with rates w_i is the i-th
    with probability w_i / sum(w), and so on among the others (Efraimidis and Spirakis, 2006).
    """

    def waits(slot: Slot) -> tuple[int, float, str]:
        drawn = derive_seed(seed, "completer", prompt_id, slot.model, slot.number)
        rate = weights[slot.model]
        return slot.number, -math.log((drawn + 1) / 2**SEED_BITS) / rate, slot.model

    rounds = range(math.ceil(n / len(weights)))
    every = [Slot(model=name, number=number) for number in rounds for name in weights]
    return sorted(every, key=waits)[:n]


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
        first_turn = replace(turns[first], content=f"{principle.text}\n\n{turns[first].content}")
        return (*turns[:first], first_turn, *turns[first + 1 :])
    if turns[0].role == SYSTEM:
        both = f"{turns[0].content}\n\n{principle.text}"
        return (replace(turns[0], content=both), *turns[1:])
    return (Message(role=SYSTEM, content=principle.text), *turns)
