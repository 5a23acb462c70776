"""The environment variables of a model's process: the ones that libraries need, and no secrets."""

import gc
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from ...configs.engines import EngineConfig
from ...configs.section import Section
from ..devices import is_cpu_build
from .places import DeviceGroup

ALLOWED = frozenset(
    {
        *("HOME", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "LD_PRELOAD", "LOGNAME", "NO_PROXY"),
        *("PATH", "SHELL", "TMPDIR", "TZ", "USER", "VIRTUAL_ENV"),
    }
)
ALLOWED_PREFIXES = (
    *("CUDA", "DNNL", "GOMP", "HIP", "HSA", "KMP", "LC_", "MALLOC", "MKL", "NCCL", "NVIDIA", "OMP"),
    *("ONEDNN", "OPENBLAS", "PYTHON", "PYTORCH", "ROCM", "TORCH", "TRITON", "VLLM", "XDG"),
)
NO_KEYS = ("KEY", "TOKEN", "SECRET", "PASSWORD")
"""A variable whose name contains one of these never reaches a worker."""

DEFAULTS = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"}
"""Workers share the cores: threads that spin at barriers slow others up to tenfold."""

TCMALLOC = "libtcmalloc_minimal.so.4"
USR, LIBRARIES = Path("/usr"), ("lib/*-linux-gnu", "lib64", "lib")
"""The folders of shared libraries: Debian's, Fedora's, Arch's."""

FIXED = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "PYTHONSAFEPATH": "1",
    "PYTHONUNBUFFERED": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
}
"""No network, no statistics, and vLLM's engine in the worker itself, not in a child of it.

Children of the worker do not import modules from the current folder, either.
"""


def worker_environment(
    config: Section | None = None, devices: DeviceGroup | None = None
) -> dict[str, str]:
    """Return a worker's environment: the variables that libraries need, without secrets.

    `config` is the model's. The worker sees only the GPUs of `devices`; by default all that this
    process sees.

    Several threads split a matrix product in a way that depends on the number of requests in
    flight, which changes the last bits of log-probabilities; one thread does not.

    An engine on a CPU gets tcmalloc, if it is installed. A user's own settings win.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if (name in ALLOWED or name.startswith(ALLOWED_PREFIXES))
        and not any(word in name for word in NO_KEYS)
    }
    usual = DEFAULTS
    if isinstance(config, EngineConfig) and is_cpu_build():
        usual = DEFAULTS | preloaded_allocator()
    engine = config if isinstance(config, EngineConfig) else EngineConfig()
    own = {"VLLM_CPU_KVCACHE_SPACE": str(engine.kv_cache_gib)}
    if engine.cpu_threads:
        own |= {"OMP_NUM_THREADS": str(engine.cpu_threads), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    return {**usual, **kept, **FIXED, **own, **(devices.environment if devices else {})}


def preloaded_allocator() -> dict[str, str]:
    """Return the variable that replaces malloc by tcmalloc; empty if that is not installed.

    vLLM then takes a tenth less processor time on a CPU.
    """
    found = (path for folder in LIBRARIES for path in USR.glob(f"{folder}/{TCMALLOC}"))
    path = next(found, None)
    return {} if path is None else {"LD_PRELOAD": str(path)}


@contextmanager
def without_garbage_collection() -> Generator[None]:
    """Import or load in the block without garbage collection, and exempt the result from it.

    Modules and models stay until the process ends. Collecting garbage among their objects takes a
    fifth of the time of the imports, and later half a second at a time.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()
