"""More principles of an aspect, written by a model after the example of existing ones.

As in UltraFeedback (Section 2.3), where a model wrote ten for each one by people. The reply is read
strictly: a numbered list with the requested number of different principles, or an error.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from ...critics.templating import load_template, render
from ...policies.engines.engine import Batch, Completion, Engine, EngineError, Request, Sampling
from ...stores.keys import derive_seed
from ...stores.records import Message

TEMPLATE = Path(__file__).with_suffix(".txt")
SHOWN = frozenset({"aspect", "count", "examples"})
ITEM = re.compile(r"(\d+)[.)]\s+(\S.*)")
SAMPLING = Sampling(temperature=1.0, top_p=1.0, max_tokens=2048)


def question(aspect: str, examples: Sequence[str], count: int) -> str:
    """Return the question for `count` principles."""
    values = {
        "aspect": aspect,
        "count": str(count),
        "examples": "\n".join(f"- {text}" for text in examples),
    }
    return render(load_template(TEMPLATE, SHOWN), values)


def listed(reply: str, known: Sequence[str]) -> list[str]:
    """Return the new principles of a reply: its lines that are numbered 1, 2, 3 and so on.

    Text before or between the items is ignored. Principles that are `known`, or repeated in the
    reply, are dropped.

    Raises:
        ValueError: if the numbers are others, or an item continues in the next line.
    """
    items = list[str]()
    within = False
    for line in map(str.strip, reply.splitlines()):
        match = ITEM.fullmatch(line)
        if match is None and line and within:
            raise ValueError(f"its item {len(items)} continues on a second line")
        if match is not None and int(match[1]) != len(items) + 1:
            raise ValueError(f"its item {len(items) + 1} has the number {match[1]}")
        within = match is not None
        if match is not None:
            items.append(match[2])
    taken = {_plain(text) for text in known}
    found = list[str]()
    for text in items:
        if _plain(text) not in taken:
            taken.add(_plain(text))
            found.append(text)
    return found


def generate(
    engine: Engine, aspect: str, examples: Sequence[str], count: int, *, seed: int
) -> list[str]:
    """Ask a model for `count` principles of an aspect.

    Raises:
        EngineError: if it does not answer, or with too few principles that are new.
    """
    messages = (Message(role="user", content=question(aspect, examples, count)),)
    asked = Request(
        request_id="principles",
        messages=messages,
        seed=derive_seed(seed, "principles", aspect, count),
    )
    batch = Batch(key="principles", requests=(asked,), sampling=SAMPLING)
    (result,) = engine.generate([batch])
    return _whole(result.answers[0], examples, count)


def _whole(reply: Completion, known: Sequence[str], count: int) -> list[str]:
    if reply.finish_reason != "stop":
        raise EngineError(f"no principles: the reply ended with {reply.finish_reason}")
    try:
        found = listed(reply.text, known)
    except ValueError as error:
        raise EngineError(
            f"no principles: the reply is not a list of one principle a line: {error}"
        ) from error
    if len(found) < count:
        raise EngineError(
            f"no principles: the reply has {len(found)} new ones of the {count} requested; try "
            "another --seed, fewer, or another model"
        )
    return found[:count]


def _plain(text: str) -> str:
    """Return a text as it is compared with others."""
    return " ".join(text.casefold().split()).rstrip(".")
