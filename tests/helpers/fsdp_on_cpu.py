# pyright: basic
"""The trainer's child with FSDP as on GPUs: accelerate leaves it out on CPUs, without a word.

Nothing else is replaced: the launcher's file, accelerate, TRL and torch's `fully_shard` are real.
"""

import sys
from typing import Any

import torch
from accelerate.state import PartialState
from accelerate.utils import DistributedType

from lpfloop.policies.train_worker import main

initialise: Any = PartialState.__init__


def initialise_as_on_gpus(self: Any, cpu: bool = False, **options: Any) -> None:
    """Give a state of several processes the type that it has on GPUs."""
    initialise(self, cpu, **options)
    if self.distributed_type == DistributedType.MULTI_CPU:
        self.distributed_type = DistributedType.MULTI_GPU
        self.device = torch.device("cpu")


if __name__ == "__main__":
    PartialState.__init__ = initialise_as_on_gpus
    sys.exit(main(sys.argv[1]))
