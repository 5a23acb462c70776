"""Time of concurrent stages counts once."""

from lpfloop.loop.run.stage import StageTime, WallTime


def test_time_side_by_side_counts_once():
    now = iter((0.0, 1.0, 5.0, 7.0, 8.0, 9.0))
    wall = WallTime(lambda: next(now))
    first, second, third = (StageTime(wall) for _ in range(3))
    first.begin()
    second.begin()
    assert second.end() == (4.0, 4.0)
    third.begin()
    assert first.end() == (8.0, 1.0)
    assert third.end() == (2.0, 0.0)


def test_waiting_time_is_of_the_other_stage():
    now = iter((0.0, 1.0, 2.0, 6.0, 8.0, 9.0))
    wall = WallTime(lambda: next(now))
    first, second = StageTime(wall), StageTime(wall)
    first.begin()
    second.begin()
    with second.rest():
        pass  # From 2 to 6.
    assert first.end() == (8.0, 3.0)
    assert second.end() == (4.0, 0.0)
