"""What annotators that share pairs are expected to be asked is what draws come to."""

import math
from collections import Counter

import pytest

from lpfloop.configs.load import load_config
from lpfloop.critics.annotators.annotator_pool import load_pool
from lpfloop.critics.annotators.simulate import assign, coin
from lpfloop.loop.daemon.shared_work import SharedPairs
from lpfloop.loop.run.panel import Panel

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


def test_expected_requests(subtests):
    for pairs, flips, settings in [
        (1, 0.25, ()),
        (2, 0.0, ("annotation.keyed_on=instruction",)),
        (1, 0.0, ("annotation.order=both", "prompts.chunk=8")),
    ]:
        with subtests.test(pairs=pairs, flips=flips, settings=settings):
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
            assert every == pytest.approx(
                sum(found.total() for found in drawn) / len(drawn), rel=0.03
            )
