"""Where an online method's sampler runs: on GPUs of its own, or beside its trainer.

The trainer's first process opens the sampler, on its own node. A node's processes see first the
GPUs that they train on, one each, then those that are the sampler's alone: their numbers there are
other ones than in the configuration.
"""

from collections.abc import Sequence

from ...configs.engines import EngineConfig
from ..devices import Gpu
from ..workers.places import DeviceGroup, device_groups
from .trainer_job import TrainJob

SECTION = "policy.engine"


def sampler_gpus(job: TrainJob, trained_on: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """Return the GPUs that the job's sampler has to itself.

    Raises:
        ConfigError: naming the setting that this machine cannot follow.
    """
    if job.online is None:
        return ()
    groups = device_groups(SECTION, job.online.engine.devices, "auto")
    return tuple(gpu for group in groups for gpu in group.gpus if gpu not in trained_on)


def engine_in_trainer(job: TrainJob, engine: EngineConfig) -> EngineConfig:
    """Return the sampler's engine with the numbers that its GPUs have in the trainer's processes.

    Its own number of replicas is that of its GPUs, as outside.
    """
    if engine.devices == "auto":
        return engine
    trained_on = range(job.processes_per_node) if job.fit.devices == "auto" else job.fit.devices
    own = tuple(trained_on)[: job.processes_per_node]
    order = (*own, *(number for number in engine.devices if number not in own))
    numbers = tuple(order.index(number) for number in engine.devices)
    return engine.model_copy(update={"devices": numbers})


def is_shared(group: DeviceGroup, job: TrainJob) -> bool:
    """Return whether one of the job's processes trains on a GPU of a replica, as numbered there."""
    return any(number < job.processes_per_node for number in group.numbers)
