"""How a run can end other than by an error."""

WENT_ON = "went on after alarms"
"""The kind of the event that records of which iteration it was decided to go on."""


class NothingToTrainOn(Exception):  # noqa: N818 -- an outcome, not an error
    """An iteration that ends before training; the message says why."""


class Regressed(Exception):  # noqa: N818 -- an outcome, not an error
    """A run that stops as its last policy is worse than the best; the message says by how much."""


class AlarmStopError(Exception):
    """An alarm that stops was raised, and the run is to stop at it."""
