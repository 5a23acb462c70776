"""In every bucket longer answers win as often as they lose, after skipping as few as possible."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from lpfloop.loop.stages.balance_length import fates
from lpfloop.policies.trainers.length_bias import bucket_of

LONGER = st.lists(st.integers(-20, 20), max_size=60)


def sign(number: int) -> int:
    return (number > 0) - (number < 0)


@given(LONGER, st.integers(1, 16))
def test_buckets_keep_as_many_of_either_side(longer, width):
    found = fates({f"pair-{n}": more for n, more in enumerate(longer)}, width, 7)
    assert len(found) == len(longer)
    came = Counter((bucket_of(n, width), sign(n)) for n in longer)
    kept = Counter(
        (found[f"pair-{place}"][0], sign(n))
        for place, n in enumerate(longer)
        if found[f"pair-{place}"][1] == "kept"
    )
    for (bucket, side), count in came.items():
        wanted = count if side == 0 else min(count, came[bucket, -side])
        assert kept[bucket, side] == wanted
