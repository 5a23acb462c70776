"""Scripted judges of facts, and a policy that writes biographies."""

import re

from marking import MARK

from lpfloop.policies.engines.engine import Request, Sampling

SHOWN = re.compile(r"<text-[0-9a-f]+>\n(.*?)\n</text-[0-9a-f]+>", re.DOTALL)
SENTENCE = re.compile(r"(?<=[.!?])\s+")
BIOGRAPHIES = (
    "Mia Berg was born in Oslo. Mia Berg was born in 1951. Oslo is a port.",
    "Mia Berg was born in Oslo. Mia Berg painted birds. Mia Berg painted birds.",
    "I am sorry, but I know nothing of her.",
    "",
)
REFERENCE = "Mia Berg was born in Oslo in 1950. Mia Berg painted birds."
ABOUT_TOWNS = "Oslo is a port."


def biographer(request: Request, sampling: Sampling) -> str:
    """Write the biography that the question asks for by its number."""
    return BIOGRAPHIES[int(request.messages[-1].content.rsplit(maxsplit=1)[-1].strip(".")) % 4]


def fact_judge(request: Request, sampling: Sampling) -> str:
    """Break up passages by sentences, and find statements in the reference by their words."""
    return _marked(request, _support)


def unsure_judge(request: Request, sampling: Sampling) -> str:
    """Break up passages, and say nothing of statements that can be read."""
    return _marked(request, lambda _: "Hard to say.")


def _marked(request: Request, support) -> str:
    text = request.messages[-1].content
    mark = MARK.search(text)
    shown = SHOWN.findall(text)
    reply = _statements(shown[-1]) if "Break a passage" in text else support(shown)
    return f"{mark[1]}\n{reply}" if mark else reply


def _statements(passage: str) -> str:
    if passage.startswith("I am sorry"):
        return "NONE"
    return "\n".join(f"- {sentence}" for sentence in SENTENCE.split(passage))


def _support(shown: list[str]) -> str:
    _, reference, *statements = shown
    known = set(re.findall(r"\w+", reference.casefold()))
    return "\n".join(
        f"{number}: {_verdict(statement, known)}. By its words."
        for number, statement in enumerate(statements, start=1)
    )


def _verdict(statement: str, known: set[str]) -> str:
    if statement == ABOUT_TOWNS:
        return "irrelevant"
    words = set(re.findall(r"\w+", statement.casefold()))
    return "supported" if words <= known else "not supported"
