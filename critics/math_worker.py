# pyright: basic
"""A worker process of `math_pool`: compares answers by math-verify, one JSON line in, one out.

It runs as a script, not as a module of the package: it needs math-verify alone, starts quickly, and
does not depend on the caller's `__main__`. It ends when its input closes. The kernel ends it when a
comparison outlives the deadline that the request states (SIGALRM kills even while C code runs), so
a worker whose parent died cannot spin for ever; math-verify's own limit, which uses the same
signal, is off.
"""

import contextlib
import json
import logging
import resource
import signal
import sys
from typing import Any

from math_verify import parse, verify

MEMORY = 2 * 1024**3
"""Address space of a worker, in bytes: a term like 9^9^9^9 fails instead of filling the host."""


def read(final: dict[str, Any]) -> list[Any]:
    """Parse a final answer: as one formula if it is one, else by math-verify's own search."""
    text = final["text"]
    found = parse(f"\\boxed{{{text}}}", parsing_timeout=0) if final["formula"] else []
    return found or parse(text, parsing_timeout=0)


def compare(request: dict[str, Any]) -> str:
    """Return `equal`, `different`, or `unreadable` if there is no answer in the reference."""
    gold = read(request["gold"])
    if not gold:
        return "unreadable"
    answer = read(request["answer"])
    return "equal" if verify(gold, answer, timeout_seconds=None) else "different"


def main() -> None:
    """Answer requests until the input closes."""
    logging.disable(logging.CRITICAL)
    # macOS knows no such limit.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    sys.stdout.write('"ready"\n')
    sys.stdout.flush()
    for line in sys.stdin:
        request = json.loads(line)
        signal.alarm(request["limit_s"])
        try:
            outcome = compare(request)
        except (ArithmeticError, MemoryError, RecursionError, TypeError, ValueError):
            outcome = "failed"
        signal.alarm(0)
        sys.stdout.write(json.dumps(outcome) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
