"""The order in which vLLM is put to sleep, woken, and given new weights.

No GPU is needed: an LLM stands in that keeps to vLLM's rules for tags (v1/executor/abstract.py).
"""

from collections.abc import Sequence

from lpfloop.policies.engines.vllm_sleep import VLLMSleep

TAGS = {"weights", "kv_cache"}


class SleepyLLM:
    """Holds weights and a cache on a device; vLLM warns where this one raises."""

    def __init__(self) -> None:
        self.sleeping = set[str]()
        self.weights = "old"

    def sleep(self, level: int) -> None:
        assert not self.sleeping
        self.sleeping = set(TAGS)
        if level == 2:
            self.weights = "lost"

    def wake_up(self, tags: Sequence[str] = tuple(TAGS)) -> None:
        assert set(tags) <= self.sleeping
        self.sleeping -= set(tags)

    def load(self) -> None:
        """Load weights: these must be awake, and there is no room beside the cache."""
        assert self.sleeping == {"kv_cache"}
        self.weights = "new"


def test_sleep_and_wake() -> None:
    llm = SleepyLLM()
    rest = VLLMSleep(llm)
    rest.wake()
    for order in (rest.sleep, rest.sleep):
        order()
        assert llm.sleeping == TAGS
    for order in (rest.wake, rest.wake):
        order()
        assert not llm.sleeping
    assert llm.weights == "old"


def test_new_weights() -> None:
    for asleep in (True, False):
        llm = SleepyLLM()
        rest = VLLMSleep(llm)
        if asleep:
            rest.sleep()
        with rest.new_weights():
            llm.load()
        assert not llm.sleeping
        assert llm.weights == "new"
