"""Selecting the prompts of a run."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from rows import PROMPT

from lpfloop.loop.stages.select_prompts import Suitable

CLASSES = st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=24)


@given(CLASSES, st.integers(0, 4), st.integers(1, 30), st.integers(1, 6))
def test_share_holds_least_of_each_class(classes, least, size, number):
    prompts = [replace(PROMPT, prompt_id=str(n)) for n in range(len(classes))]
    known = {str(n): name for n, name in enumerate(classes) if name is not None}
    share = Suitable(prompts=prompts, intentions=known, least=least).share(number, size)
    taken = min(size, len(prompts))
    assert len({p.prompt_id for p in share}) == len(share) == taken
    have, there = (Counter(known.get(p.prompt_id) for p in some) for some in (share, prompts))
    names = sorted(set(known.values()))
    wanted = {name: min(least, there[name]) for name in names}
    if sum(wanted.values()) <= taken:
        assert all(have[name] >= wanted[name] for name in names)
    else:
        assert all(have[name] <= wanted[name] for name in names)
        lacking = [have[name] for name in names if have[name] < wanted[name]]
        assert max(have[name] for name in names) - min(lacking) <= 1
