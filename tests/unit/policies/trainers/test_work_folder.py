"""A training saves at intervals, and on request to end."""

from pathlib import Path

from lpfloop.policies.trainers.work_folder import Orders, Pace, read_orders, write_orders


class Clock:
    """A clock that the test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_checkpoint_due(tmp_path: Path):
    clock = Clock()
    pace = Pace(tmp_path, clock)
    write_orders(tmp_path, Orders(checkpoint_s=60.0))
    turns = []
    for clock.now in (1.0, 59.9, 60.0):
        turns.append(pace.turn())
    clock.now = 100.0  # saving took 40 seconds
    pace.restart()
    for clock.now in (101.0, 159.9, 160.0):
        turns.append(pace.turn())
    assert turns == ["go on", "go on", "save"] * 2


def test_orders(tmp_path: Path):
    clock = Clock()
    pace = Pace(tmp_path, clock)
    assert read_orders(tmp_path) == Orders()
    clock.now = 599.0
    assert pace.turn() == "go on"
    write_orders(tmp_path, Orders(checkpoint_s=30.0))
    assert pace.turn() == "save"
    write_orders(tmp_path, Orders(end=True))
    assert pace.turn() == "end"
