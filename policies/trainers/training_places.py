"""Where a training runs: in how many processes, and which GPUs these see.

A trainer that sees more GPUs than it has processes would spread one model over all of them, which
TRL refuses: its processes are shown their own alone.
"""

from collections.abc import Mapping

from ...configs.section import ConfigError
from ...configs.training import TrainingConfig
from ..devices import Gpu, showing
from ..workers.places import device_groups
from .sampler_places import sampler_gpus
from .trainer_faults import TrainingError
from .trainer_job import Settings, TrainJob
from .training_fit import TrainingFit

SECTION = "training"


def training_gpus(place: TrainingConfig | TrainingFit) -> tuple[Gpu, ...]:
    """Return the GPUs that a training may use; none on a CPU.

    Raises:
        ConfigError: naming the setting that this machine cannot follow.
    """
    groups = device_groups(SECTION, place.devices, "auto")
    return tuple(gpu for group in groups for gpu in group.gpus)


def processes_of(training: TrainingConfig, settings: Settings, gpus: int) -> int:
    """Return the number of processes of a training that may use so many GPUs of each node.

    `auto` is one for each of them, or the largest number that shares an optimizer step evenly.
    """
    if training.processes != "auto":
        return training.processes
    nodes = training.nodes
    fewer = range(nodes * max(1, gpus), 0, -nodes)
    return next(n for n in fewer if n == nodes or _share(training, settings, n))


def _share(training: TrainingConfig, settings: Settings, processes: int) -> bool:
    beside = training.next_token
    even = settings.batch_size % (settings.micro_batch_size * processes) == 0
    return even and (not beside.weight or beside.batch_size % processes == 0)


def left_idle(training: TrainingConfig, settings: Settings, gpus: int) -> str:
    """Say why `auto` leaves GPUs idle; nothing where it uses all."""
    processes, there = processes_of(training, settings, gpus), gpus * training.nodes
    if training.processes != "auto" or processes >= there:
        return ""
    return (
        f"training.processes=auto takes {processes} of {there} GPUs: more do not divide batch_size "
        f"{settings.batch_size} by micro_batch_size {settings.micro_batch_size}"
    )


def shown_gpus(job: TrainJob) -> Mapping[str, str]:
    """Return the variables under which the processes of a training see their own GPUs alone.

    Those of an online method see its sampler's besides, behind their own.

    Raises:
        TrainingError: of kind `refused`, when there are fewer than processes.
    """
    try:
        gpus, here = training_gpus(job.fit), job.processes_per_node
        besides = sampler_gpus(job, gpus[:here])
    except ConfigError as error:
        raise TrainingError("refused", str(error)) from error
    if gpus and here > len(gpus):
        message = f"{here} processes need a GPU each, and there are {len(gpus)}"
        raise TrainingError("refused", message)
    return showing((*gpus[:here], *besides))
