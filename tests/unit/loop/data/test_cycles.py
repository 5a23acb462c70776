"""lpfloop breaks circles of comparisons, and ties in them, by dropping as few as possible."""

from dataclasses import replace
from itertools import combinations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import PREFERENCE

from lpfloop.configs.annotation import AnnotationConfig
from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError
from lpfloop.loop.data.cycles import contradicting, drop_cycles
from lpfloop.loop.data.judged_candidates import READ
from lpfloop.loop.run.judges import Panels
from lpfloop.stores.frames import rows_frame
from lpfloop.stores.records import Preference

ON = AnnotationConfig(drop_cycles=True)
NAMES = "abcdef"
VERDICTS = st.lists(st.permutations(NAMES[:5]).map(lambda names: (names[0], names[1])), max_size=11)


def acyclic(verdicts) -> bool:
    """Return whether repeatedly removing the best leaves nobody."""
    left = set(verdicts)
    names = {name for verdict in left for name in verdict}
    while names:
        best = {name for name in names if all(loser != name for _, loser in left)}
        if not best:
            return False
        names -= best
        left = {verdict for verdict in left if verdict[0] not in best}
    return True


def fewest(verdicts) -> int:
    """Try all sets, the smallest first."""
    places = range(len(verdicts))
    for count in range(len(verdicts) + 1):
        for out in combinations(places, count):
            if acyclic([verdicts[place] for place in places if place not in out]):
                return count
    raise AssertionError


@given(VERDICTS)
def test_fewest_verdicts_are_left_out(verdicts):
    out = contradicting(verdicts)
    rest = [verdict for place, verdict in enumerate(verdicts) if place not in out]
    assert acyclic(rest)
    assert len(set(out)) == len(out) == fewest(verdicts)


def vote(prompt: str, first: str, second: str, preferred) -> Preference:
    return replace(
        PREFERENCE,
        preference_id=f"{prompt}:{first}{second}{preferred}",
        prompt_id=prompt,
        first_id=f"{prompt}-{first}",
        second_id=f"{prompt}-{second}",
        preferred=preferred,
        status="missing" if preferred is None else "scored",
    )


def frame(votes) -> pl.DataFrame:
    return rows_frame(Preference, votes).select(READ["preferences"])


VOTES = [
    vote("p", "a", "b", "first"),
    vote("p", "b", "c", "first"),
    vote("p", "a", "c", "second"),
    vote("p", "c", "d", "tie"),
    vote("p", "b", "d", None),
    vote("q", "a", "b", "second"),
    vote("q", "a", "b", "first"),
]


def test_receipts_count_comparisons():
    found = drop_cycles(frame(VOTES), ON, 3)
    told = {counted.outcome: counted for counted in found.filter_counts}
    assert {name: counted.count for name, counted in told.items()} == {
        "kept": 3, "tied": 1, "unread": 1, "circular": 1, "repeated": 1
    }  # fmt: skip
    assert sum(counted.count for counted in found.filter_counts) == len(VOTES)
    assert {r.items for r in found.filter_counts} == {"comparisons"}
    assert {r.iteration for r in found.filter_counts} == {3}
    (circular,) = told["circular"].examples
    kept = set(found.comparisons["preference_id"])
    assert circular not in kept
    assert told["repeated"].examples == ("q:absecond",)
    assert kept == {v.preference_id for v in VOTES} - {circular, "q:absecond"}


def test_too_many_answers_are_refused():
    wanted = ("annotation.drop_cycles=true", "annotation.comparisons=all", "recipe.n=17")
    config = load_config("tiny", "dpo", wanted, {})
    with pytest.raises(ConfigError, match=r"recipe.n is 17.*at most 16 answers"):
        Panels.of(config)
