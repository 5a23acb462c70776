"""The verbs of one iteration, of a run that is opened for a test and told nothing about."""

from collections.abc import Iterator
from contextlib import contextmanager

from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import iteration, ordered
from lpfloop.loop.daemon.opening import opened
from lpfloop.loop.data.prompts import load_prompts
from lpfloop.loop.run.iteration import Iteration
from lpfloop.loop.run.stop import StopSignal
from lpfloop.stores.records import Checkpoint

CHECKPOINT = Checkpoint(
    checkpoint_id="m0",
    parent_id=None,
    reference_id=None,
    iteration=0,
    recipe="initial",
    path="tiny",
    steps=0,
    metrics="{}",
)


class Silence:
    """A reporter that says nothing; after some commits it asks for a stop."""

    def __init__(self, stop: StopSignal, after: int = -1) -> None:
        self._stop = stop
        self._left = after

    def begin(self, iteration, stage, *, planned, done):
        pass

    def advance(self, iteration, stage, advance):
        self._left -= 1
        if self._left == 0:
            self._stop.request()

    def end(self, iteration, stage):
        pass

    def note(self, text):
        pass


@contextmanager
def turn(wanted: Job, stop_after: int = -1, number: int = 1) -> Iterator[Iteration]:
    """The verbs of an iteration of a run that is opened for it."""
    stop = StopSignal()
    prompts = load_prompts(wanted.config.prompts, seed=wanted.config.seed)
    with opened(wanted, prompts, Silence(stop, stop_after), stop) as run:
        train = ordered(prompts, "train", 0)[: wanted.config.prompts.per_iteration]
        yield iteration(run, number, CHECKPOINT, train)


def rows(it: Iteration, handle) -> list:
    """The rows of a handle, chunk by chunk."""
    it.run.store.flush()
    return [row for chunk in range(handle.chunks) for row in it.chunk(handle, chunk)]
