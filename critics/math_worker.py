# pyright: basic
"""A worker process of `math_pool`: compares answers by math-verify, one JSON line in, one out.

It runs as a script, not as a module of the package: it needs only math-verify, starts quickly, and
does not depend on the caller's `__main__`. It ends when its input closes. The kernel ends it when a
comparison has used the processor time that the request states (SIGPROF kills even while C code
runs), so a worker whose parent died cannot spin forever, and load on the machine causes no
timeouts; math-verify's own limit is off.
"""

import contextlib
import json
import logging
import resource
import signal
import sys
from typing import Any

from math_verify import parse, verify
from sympy import FiniteSet, Float

MEMORY = 2 * 1024**3
"""Address space of a worker, in bytes: a term like 9^9^9^9 fails instead of filling the host."""
PLACES = 6
"""Numbers, one of them with a decimal point, are equal if they agree to this many places."""
WARM = {"text": "\\frac{1}{2}+x, 3", "formula": True}
"""A formula whose reading loads everything that later ones need."""


def read(final: dict[str, Any]) -> list[Any]:
    """Parse a final answer: as one formula if it is one, else by math-verify's own search."""
    text = final["text"]
    found = parse(f"\\boxed{{{text}}}", parsing_timeout=0) if final["formula"] else []
    return found or parse(text, parsing_timeout=0)


def compare(request: dict[str, Any]) -> str:
    """Return `equal`, `different`, or `unreadable` if the reference lacks an answer."""
    gold = read(request["gold"])
    if not gold:
        return "unreadable"
    answer = read(request["answer"])
    return "equal" if equal(gold, answer) else "different"


def equal(gold: list[Any], answer: list[Any]) -> bool:
    """Whether math-verify finds them equal, or an answer in several forms equals it in each."""
    if verify(gold, answer, timeout_seconds=None) or (answer and alike(gold[0], answer[0])):
        return True
    several = answer and isinstance(answer[0], FiniteSet) and not isinstance(gold[0], FiniteSet)
    return bool(several) and all(equal(gold, [form]) for form in answer[0].args)


def alike(gold: Any, answer: Any) -> bool:
    """Whether two real numbers with a decimal point agree: sympy rounds 0.7 - 0.6 to 0.0999..."""
    pointed = any(hasattr(x, "has") and x.has(Float) for x in (gold, answer))
    if not pointed or not all(getattr(x, "is_real", False) for x in (gold, answer)):
        return False
    return round(float(gold), PLACES) == round(float(answer), PLACES)


def main() -> None:
    """Answer requests until the input closes."""
    logging.disable(logging.CRITICAL)
    # macOS knows no such limit.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    compare({"gold": WARM, "answer": {"text": "x+0.5 and 4", "formula": False}})
    sys.stdout.write('"ready"\n')
    sys.stdout.flush()
    for line in sys.stdin:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, request["limit_s"])
        try:
            outcome = compare(request)
        except (ArithmeticError, MemoryError, RecursionError, TypeError, ValueError):
            outcome = "failed"
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.write(json.dumps(outcome) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
