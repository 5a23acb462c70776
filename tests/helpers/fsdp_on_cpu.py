# pyright: basic
"""The trainer's child with FSDP as on GPUs: on CPUs accelerate silently disables it.

Everything else is real: the launcher's file, accelerate, TRL and torch's `fully_shard`.
"""

import sys
from typing import Any

import torch
from accelerate.state import PartialState
from accelerate.utils import DistributedType

from lpfloop.policies.train_worker import main

initialise: Any = PartialState.__init__


def initialise_as_on_gpus(self: Any, cpu: bool = False, **options: Any) -> None:
    """Give the state of several processes the type that it has on GPUs."""
    initialise(self, cpu, **options)
    if self.distributed_type == DistributedType.MULTI_CPU:
        self.distributed_type = DistributedType.MULTI_GPU
        self.device = torch.device("cpu")


if __name__ == "__main__":
    PartialState.__init__ = initialise_as_on_gpus
    sys.exit(main(sys.argv[1]))
