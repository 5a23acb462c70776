"""The world's verifier in the places of a reward model and of an annotator.

AlpacaFarm's methods ask for both. Here the truth is a function, so it plays both parts.
"""

from collections.abc import Sequence
from functools import cache

from ...critics.annotators.pair_verdicts import reply_of
from ...critics.checks import fulfils
from ...policies.engines.engine import Request, Sampling
from ...stores.records import Check, Preferred, Prompt
from ..tiny.annotators import form_of, pairs_in
from .prompts import TOPICS, prompts


def score(prompts: Sequence[Prompt], texts: Sequence[str]) -> list[float]:
    """Return the reward of each answer: the share of its prompt's checks that it meets."""
    return [share_met(prompt.checks, text) for prompt, text in zip(prompts, texts, strict=True)]


def annotator(request: Request, _: Sampling) -> str:
    """Answer a question of a pool of annotators: the answer that meets more checks is preferred."""
    question = "\n".join(message.content for message in request.messages)
    form, several = form_of(question)
    verdicts = [
        (pair.label, *prefer(pair.instruction, pair.first, pair.second))
        for pair in pairs_in(question, "strong")
    ]
    return reply_of(form, verdicts, several=several)


def prefer(instruction: str, first: str, second: str) -> tuple[Preferred, str]:
    """Return which of two answers meets more of a prompt's checks, and why."""
    checks = _checks()[instruction]
    one, other = share_met(checks, first), share_met(checks, second)
    if one == other:
        return "tie", "Both meet as many demands."
    return ("first" if one > other else "second"), "It meets more demands."


def share_met(checks: Sequence[Check], text: str) -> float:
    """Return the share of checks that an answer meets."""
    return sum(fulfils(text, check) for check in checks) / len(checks)


@cache
def _checks() -> dict[str, tuple[Check, ...]]:
    return {prompt.text: prompt.checks for split in TOPICS for prompt in prompts(split)}
