"""A failpoint does nothing until it is armed, then exactly the requested action."""

import pytest

from lpfloop.stores.failpoints import FailpointError, arm, reach

PLACE = "part.rename.before"


def test_nth_time_armed():
    calls = []
    with arm({f"{PLACE}#2": calls.append, f"{PLACE}#3": calls.append}):
        for _ in range(4):
            reach(PLACE)
    assert calls == [PLACE, PLACE]


def test_bad_arming_refused(subtests):
    for place, action in [
        (PLACE, "explode"),
        (f"{PLACE}#0", "kill"),
    ]:
        with subtests.test(case=place), pytest.raises(FailpointError), arm({place: action}):
            pass
