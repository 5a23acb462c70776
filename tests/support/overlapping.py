"""Scripted models of runs whose stages overlap: slow ones, and such as fail or never answer."""

import threading
import time

import scripts

from lpfloop.policies.engines.engine import EngineError, Request, Sampling

LONG_S = 600
"""Nobody waits so long, unless a test has failed."""

begun = threading.Event()
released = threading.Event()
calls: list[str] = []


def forget() -> None:
    """Begin anew."""
    begun.clear()
    released.clear()
    calls.clear()


def slow_policy(request: Request, sampling: Sampling) -> str:
    """Answer after a while."""
    calls.append("policy")
    time.sleep(0.01)
    return scripts.policy(request, sampling)


def held_policy(request: Request, sampling: Sampling) -> str:
    """Answer sixteen times, and then when it is released."""
    return _held(16, request, sampling)


def long_held_policy(request: Request, sampling: Sampling) -> str:
    """Answer four hundred times, and then when it is released."""
    return _held(400, request, sampling)


def _held(free: int, request: Request, sampling: Sampling) -> str:
    calls.append("policy")
    if calls.count("policy") > free:
        released.wait(LONG_S)
    return scripts.policy(request, sampling)


def failing_critic(request: Request, sampling: Sampling) -> str:
    """Answer four times."""
    calls.append("critic")
    if calls.count("critic") == 5:
        raise EngineError("the critic is gone")
    return scripts.clear_critic(request, sampling)


def verifier(prompt: object, text: str) -> int:
    """Note in which thread it runs: what people write may need to be in the main one."""
    calls.append(threading.current_thread().name)
    return 1


def stuck_policy(request: Request, sampling: Sampling) -> str:
    """Answer when it is released."""
    begun.set()
    released.wait(LONG_S)
    calls.append("policy")
    return scripts.policy(request, sampling)
