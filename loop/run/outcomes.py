"""How a run can end other than by an error, and the journal's events of its processes."""

START = "start"
"""A process begins to work on the run: pid, host, started."""
STAGE = "stage"
"""The process begins a stage that owes something: iteration, stage, done, at."""
END = "end"
"""The process ends without being killed: how, as a sentence."""


WENT_ON = "went on after alarms"
"""The kind of the event that records the iteration with which it was decided to go on."""


class NothingToTrainOn(Exception):  # noqa: N818 -- an outcome, not an error
    """An iteration that ends before training; the message has the reason."""

    code = "LPF-402"


class Regressed(Exception):  # noqa: N818 -- an outcome, not an error
    """A run that stops because its last policy is worse than the best; the message has the gap."""

    code = "LPF-403"


class AlarmStopError(Exception):
    """An alarm that stops was raised, and the run is to stop at it."""

    code = "LPF-404"
