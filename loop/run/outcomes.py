"""How a run can end other than by an error."""


class NothingToTrainOn(Exception):  # noqa: N818 -- an outcome, not an error
    """An iteration that ends before training; the message says why."""


class Regressed(Exception):  # noqa: N818 -- an outcome, not an error
    """A run that stops as its last policy is worse than the best; the message says by how much."""
