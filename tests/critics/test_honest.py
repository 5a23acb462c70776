"""No honest verdict is lost: real judges' reasons about real answers, bare and guarded."""

from itertools import islice

import pytest
from honest import judgements

from lpfloop.critics.guard import BARE, GuardKey

SHARE = 4
"""One in so many by default; all of them with `-m slow`."""


@pytest.mark.parametrize(
    ("share", "least"), [(SHARE, 3_000), pytest.param(1, 10_000, marks=pytest.mark.slow)]
)
def test_no_honest_verdict_is_lost(shared_rows, share, least):
    lost, count = [], 0
    for number, judgement in enumerate(islice(judgements(shared_rows), 0, None, share)):
        count += 1
        for key in (BARE, GuardKey.of(7, f"ask-{number}")):
            found = judgement.read(key)
            if found != ("scored", judgement.expected):
                lost.append((found, judgement.expected, judgement.verdict, key))
    assert lost == []
    assert count >= least
