# pyright: basic
"""How a model that vLLM holds leaves a GPU to others, and comes back.

vLLM maps and unmaps the memory of weights and cache by itself, which it can on CUDA and ROCm. What
follows from its source (vllm/v1/worker/gpu_worker.py, 0.32) has not been run: no GPU was at hand.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any


def sleeps_here() -> bool:
    """Whether vLLM can sleep on this machine's devices."""
    from vllm.platforms import current_platform

    return bool(
        current_platform.is_sleep_mode_available()
        and current_platform.is_cumem_allocator_available()
    )


class VLLMSleep:
    """Whether an LLM that was opened with `enable_sleep_mode` is asleep."""

    def __init__(self, llm: Any) -> None:
        self._llm = llm
        self._asleep = False

    def sleep(self) -> None:
        """Move the weights into the machine's memory; the cache is forgotten (level 1)."""
        if not self._asleep:
            self._llm.sleep(level=1)
            self._asleep = True

    def wake(self) -> None:
        """Move the weights back to the device, and make room for a new cache."""
        if self._asleep:
            self._llm.wake_up()
            self._asleep = False

    @contextmanager
    def new_weights(self) -> Generator[None]:
        """Let weights be loaded, without the cache and without the old ones; then be awake.

        A layer's new weights are read beside its old ones, for which a cache that fills the device
        leaves no room: it is given up before, and the old weights with it (level 2). vLLM keeps a
        copy of the buffers that no file holds (rotary tables, scales of the cache) and puts it
        back as the weights wake; a parameter that the folder does not hold would be lost
        (vllm#15254, #16663), which the canary shows.
        """
        if not self._asleep:
            self._llm.sleep(level=2)
            self._asleep = True
        self._llm.wake_up(tags=["weights"])
        yield
        self._llm.wake_up(tags=["kv_cache"])
        self._asleep = False
