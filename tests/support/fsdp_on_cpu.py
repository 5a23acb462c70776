"""The trainer's child with FSDP as on GPUs: accelerate leaves it out on CPUs, without a word.

Nothing else is replaced: the launcher's file, accelerate, TRL and torch's `fully_shard` are real.
"""

import sys

import torch
from accelerate.state import PartialState
from accelerate.utils import DistributedType

from lpfloop.policies.train_worker import main

initialise = PartialState.__init__


def initialise_as_on_gpus(state: PartialState, *arguments: object, **options: object) -> None:
    """Give a state of several processes the type that it has on GPUs."""
    initialise(state, *arguments, **options)
    if state.distributed_type == DistributedType.MULTI_CPU:
        state.distributed_type = DistributedType.MULTI_GPU
        state.device = torch.device("cpu")


if __name__ == "__main__":
    PartialState.__init__ = initialise_as_on_gpus
    sys.exit(main(sys.argv[1]))
