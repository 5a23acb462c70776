"""Workers behind an agent, as on another machine: what the head sends is looked at on its way."""

from collections.abc import Callable
from pathlib import Path

from lpfloop.policies.workers.channel import PipeChannel
from lpfloop.policies.workers.places import DeviceGroup
from lpfloop.policies.workers.weights import NodeWeights
from lpfloop.policies.workers.wire import Frame
from lpfloop.policies.workers.worker import Starter, Worker, opened_environment

Way = Callable[[Frame], Frame]


class RelayedChannel(PipeChannel):
    """A child process, every frame for which passes through the agent's `NodeWeights`."""

    def __init__(self, opening: Frame, *, log: Path, way: Way) -> None:
        self._weights = NodeWeights()
        self._way = way
        super().__init__(log=log, environment=opened_environment(opening, DeviceGroup()))

    def send(self, frame: Frame, limit_s: float) -> bool:
        return super().send(self._weights.at_hand(self._way(frame)), limit_s)

    def kill(self) -> None:
        self._weights.close()
        super().kill()


def relayed_workers(*, log: Path, way: Way = lambda frame: frame) -> Starter:
    """Start workers behind an agent; `way` says what becomes of a frame before the agent has it."""
    return lambda opening: Worker(opening, RelayedChannel(opening, log=log, way=way))


def without_disk(frame: Frame) -> Frame:
    """Let the head's path name nothing, as on a machine that does not see its disk."""
    sent = frame.get("weights")
    return frame if sent is None else frame | {"weights": {**sent, "path": "/head" + sent["path"]}}
