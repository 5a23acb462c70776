"""A failpoint does nothing until it is armed, then exactly the requested action."""

import pytest

from lpfloop.stores.failpoints import arm, reach

PLACE = "part.rename.before"


def test_nth_time_armed():
    calls = []
    with arm({f"{PLACE}#2": calls.append, f"{PLACE}#3": calls.append}):
        for _ in range(4):
            reach(PLACE)
    assert calls == [PLACE, PLACE]


def test_unknown_action_refused():
    with pytest.raises(ValueError, match="explode"), arm({PLACE: "explode"}):
        pass
