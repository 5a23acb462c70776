"""A scripted model that makes its worker fail as a request orders.

The last message is an order: an action, then optionally `while` or `once` and a marker file. The
action happens only while that file exists, or only the first time: "die", "hang once /tmp/m".
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from lpfloop.policies.engines.engine import (
    Batch,
    BatchResult,
    Completion,
    EngineError,
    Request,
    Sampling,
)
from lpfloop.stores.records import Message

FOREVER_S = 3600
SAMPLING = Sampling(temperature=1.0, top_p=1.0, max_tokens=100)


def behave(request: Request, sampling: Sampling) -> str:
    """Carry out the order; answer with the order and the seed if the worker survives."""
    order, *condition = request.messages[-1].content.split()
    if order in FAULTS and happens(condition):
        FAULTS[order](condition)
    return f"{order} {request.seed}"


def happens(condition: list[str]) -> bool:
    """Return whether the fault is due, by its marker file."""
    match condition:
        case ["once", marker]:
            first = not Path(marker).exists()
            Path(marker).touch()
            return first
        case ["while", marker]:
            return Path(marker).exists()
        case _:
            return True


def die(_condition: list[str]) -> None:
    """End like an out-of-memory kill."""
    os.kill(os.getpid(), signal.SIGKILL)


def crash(_condition: list[str]) -> None:
    """End like a segmentation fault."""
    os.kill(os.getpid(), signal.SIGSEGV)


def leave(_condition: list[str]) -> None:
    """End with a code and last words."""
    os.write(1, b"the last words\n")
    os._exit(7)


def overflow(_condition: list[str]) -> None:
    """Raise an exception that no engine handles."""
    raise MemoryError("no memory is left on the device")


def refuse(_condition: list[str]) -> None:
    """Raise an exception that engines raise on purpose."""
    raise EngineError("the model gives no finite probabilities")


def hang(_condition: list[str]) -> None:
    """Never answer."""
    time.sleep(FOREVER_S)


def stop(_condition: list[str]) -> None:
    """Stop every thread, including the reader."""
    os.kill(os.getpid(), signal.SIGSTOP)


def orphan(condition: list[str]) -> None:
    """Leave two child processes, one of which has the worker's pipe open; then die."""
    sleeper = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({FOREVER_S})"])
    forked = os.fork()
    if not forked:
        time.sleep(FOREVER_S)
    Path(condition[1] + ".pids").write_text(f"{os.getpid()} {sleeper.pid} {forked}")
    os._exit(7)


FAULTS = {
    "die": die, "crash": crash, "leave": leave, "overflow": overflow, "refuse": refuse,
    "hang": hang, "stop": stop, "orphan": orphan,
}  # fmt: skip


def ordered(key: str, *orders: str) -> Batch:
    """Return a batch of one request an order."""
    requests = (
        Request(
            request_id=f"{key}/{place}",
            messages=(Message(role="user", content=order),),
            seed=100 * len(key) + place,
        )
        for place, order in enumerate(orders)
    )
    return Batch(key=key, requests=tuple(requests), sampling=SAMPLING)


def deadly(batch: Batch) -> bool:
    """Return whether a request of a batch orders its worker to die, for tests without a worker."""
    return any(request.messages[-1].content == "die" for request in batch.requests)


def answer(batch: Batch) -> BatchResult:
    """Return the result of a worker that survives a batch, for tests without a worker."""
    completions = (
        Completion(
            request_id=request.request_id,
            text=request.messages[-1].content,
            prompt_tokens=1,
            completion_tokens=1,
            finish_reason="stop",
            logprob=None,
        )
        for request in batch.requests
    )
    return BatchResult(key=batch.key, answers=tuple(completions))
