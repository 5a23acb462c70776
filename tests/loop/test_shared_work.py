"""What annotators that share pairs are expected to be asked is what draws come to."""

import math
from collections import Counter

import pytest

from lpfloop.configs.load import load_config
from lpfloop.critics.annotators.annotator_pool import load_pool
from lpfloop.critics.annotators.simulate import assign, coin
from lpfloop.loop.daemon.shared_work import DRAWN, SharedPairs, completers_drawn
from lpfloop.loop.run.panel import Panel
from lpfloop.stores.records import Message, Prompt

PROMPTS = 1500
POOL = load_pool("alpacafarm")


def drawn_requests(shared: SharedPairs, pairs: int, seed: int) -> Counter[str]:
    """Draw annotators and coins as a run does, and put what each gets of a chunk together."""
    by_instruction = shared.config.annotation.keyed_on == "instruction"
    got = Counter[tuple[int, str]]()
    for prompt in range(shared.prompts):
        for number in range(pairs):
            key = f"{prompt}" if by_instruction else f"{prompt}-{number}"
            if coin(key, seed, shared.panel.flip_probability) is None:
                name = assign(shared.panel.pool, key, seed).name
                got[prompt // shared.config.prompts.chunk, name] += 1
    sizes = {annotator.name: annotator.batch_size for annotator in POOL.annotators}
    found = Counter[str]()
    for (_, name), count in got.items():
        found[name] += shared.showings * math.ceil(count / sizes[name])
    return found


@pytest.mark.parametrize(
    ("pairs", "flips", "settings"),
    [
        (1, 0.25, ()),
        (6, 0.25, ()),
        (6, 0.0, ("annotation.keyed_on=instruction",)),
        (1, 0.0, ("annotation.order=both", "prompts.chunk=8")),
    ],
)
def test_expected_requests_are_what_draws_come_to(
    pairs: int, flips: float, settings: tuple[str, ...]
) -> None:
    shared = SharedPairs(
        config=load_config("tiny", "dpo", settings, {}),
        panel=Panel(pool=POOL, flip_probability=flips),
        prompts=PROMPTS,
        pairs_a_prompt=pairs,
    )
    drawn = [drawn_requests(shared, pairs, seed) for seed in range(3)]
    for annotator in POOL.annotators:
        mean = sum(found[annotator.name] for found in drawn) / len(drawn)
        assert shared.requests(annotator) == pytest.approx(mean, rel=0.15)
    every = sum(map(shared.requests, POOL.annotators))
    assert every == pytest.approx(sum(found.total() for found in drawn) / len(drawn), rel=0.03)


def test_annotators_of_nothing_are_asked_nothing() -> None:
    config, panel = load_config("tiny", "dpo", (), {}), Panel(pool=POOL, flip_probability=0.5)
    undecided = SharedPairs(config=config, panel=panel, prompts=9, pairs_a_prompt=1)
    assert undecided.requests(POOL.annotators[0]) == 0
    nobody = Panel(pool=POOL, flip_probability=0.0)
    none = SharedPairs(config=config, panel=nobody, prompts=9, pairs_a_prompt=0)
    assert none.requests(POOL.annotators[0]) == 0


def test_who_completes_very_many_prompts_is_taken_from_the_first() -> None:
    asked = (Message(role="user", content="?"),)
    prompts = [
        Prompt(
            prompt_id=f"p{n}",
            task="general",
            split="train",
            messages=asked,
            reference=None,
            checks=(),
            source="own",
        )
        for n in range(DRAWN)
    ]
    weights = {"a": 1.0, "b": 1.0, "c": 2.0}
    once = completers_drawn(weights, prompts, 2, 0, total=len(prompts))
    assert sum(once.values()) == 2 * DRAWN
    thrice = completers_drawn(weights, prompts * 3, 2, 0, total=3 * len(prompts))
    assert thrice == {name: 3 * count for name, count in once.items()}
