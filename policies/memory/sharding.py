"""How the user's file for `accelerate launch` divides a training over devices.

Bytes a parameter follow ZeRO (Rajbhandari et al., 2020, arXiv 1910.02054, Section 3): weights,
gradients and AdamW's two moments, each whole or divided by the number of processes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml

from .shapes import FLOAT32, ModelShape

Divided = frozenset[str]
"""Which of `weights`, `gradients` and `moments` each process has a part of alone."""

WHOLE: Divided = frozenset()
STAGES: Mapping[int, Divided] = {
    0: WHOLE,
    1: frozenset({"moments"}),
    2: frozenset({"moments", "gradients"}),
    3: frozenset({"moments", "gradients", "weights"}),
}
"""By ZeRO's stage; FSDP's FULL_SHARD is 3 and SHARD_GRAD_OP 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """How a training is divided; `buckets` are the gradients' copies that DDP exchanges.

    `offloaded` is what lies in the machine's memory instead.
    """

    processes: int
    divided: Divided = WHOLE
    buckets: bool = False
    offloaded: Divided = WHOLE
    unknown: str = ""

    def part_bytes(self, part: str, size: float) -> int:
        """Return what one device has of weights, gradients or moments of `size` bytes."""
        if part in self.offloaded:
            return 0
        return round(size / (self.processes if part in self.divided else 1))

    def bucket_bytes(self, gradients: int) -> int:
        """Return the gradients' second copy: DDP's `gradient_as_bucket_view` is off."""
        return gradients if self.buckets else 0

    def gathered_bytes(self, shape: ModelShape, number: int) -> int:
        """Return what is gathered of divided weights, of `number` bytes each, and its gradients.

        A layer, the next, and the gradients of one, which are summed in float32; embedding and
        output layer with their gradients, which stay while a step lasts.
        """
        if "weights" not in self.divided:
            return 0
        layer, ends = shape.matrices // shape.layers, shape.parameters - shape.matrices
        return number * (2 * layer + 2 * ends) + FLOAT32 * layer


def sharding_of(config: str | None, processes: int, kind: str = "none") -> Sharding:
    """Return how a training of `processes` is divided: by the user's file, or by its `kind`.

    That is `training.sharding`.
    """
    if config is None and kind == "fsdp2":
        return Sharding(processes=processes, divided=STAGES[3])
    if config is None:
        return Sharding(processes=processes, buckets=processes > 1)
    try:
        told: Any = yaml.safe_load(Path(config).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        return Sharding(processes=processes, unknown=f"{config} cannot be read ({error})")
    if not isinstance(told, dict):
        return Sharding(processes=processes, unknown=f"{config} is no file of accelerate's")
    return read_sharding(cast("Mapping[str, Any]", told), processes)


def read_sharding(told: Mapping[str, Any], processes: int) -> Sharding:
    """Return what a configuration of accelerate's says."""
    kind = str(told.get("distributed_type", "NO")).upper()
    if kind == "FSDP":
        return _fsdp(told.get("fsdp_config") or {}, processes)
    if kind == "DEEPSPEED":
        return _deepspeed(told.get("deepspeed_config") or {}, processes)
    if kind in ("NO", "MULTI_GPU", "MULTI_CPU"):
        return Sharding(processes=processes, buckets=processes > 1)
    return Sharding(processes=processes, unknown=f"not known for distributed_type {kind}")


def _fsdp(told: Mapping[str, Any], processes: int) -> Sharding:
    strategy = str(told.get("fsdp_sharding_strategy", "FULL_SHARD")).upper()
    kept = told.get("fsdp_reshard_after_forward", True) in (False, "false")
    partial = kept or strategy in ("2", "SHARD_GRAD_OP")
    divided = STAGES[0] if strategy in ("3", "NO_SHARD") else STAGES[2 if partial else 3]
    offloaded = STAGES[3] if told.get("fsdp_offload_params") in (True, "true") else WHOLE
    return Sharding(processes=processes, divided=divided, offloaded=offloaded)


def _deepspeed(told: Mapping[str, Any], processes: int) -> Sharding:
    if "deepspeed_config_file" in told:
        message = "not known: the file names another of DeepSpeed's (deepspeed_config_file)"
        return Sharding(processes=processes, unknown=message)
    places = {
        "moments": told.get("offload_optimizer_device"),
        "weights": told.get("offload_param_device"),
    }
    return Sharding(
        processes=processes,
        divided=STAGES.get(int(told.get("zero_stage", 2)), STAGES[2]),
        offloaded=frozenset(n for n, place in places.items() if place in ("cpu", "nvme")),
    )
