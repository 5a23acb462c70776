"""Sentence match: which sentences of an answer are in the tiny world's abstract.

A sentence counts as right if the abstract has the same sentence up to case, white space and end
marks. In the tiny world, whose abstracts list the facts in the words that answers use, the share of
right sentences is exact. In other data a true paraphrase would count as wrong, so statements are
judged one by one there (`facts`). Not counted are a label or courtesy at the start ("Answer:",
"Sure!"), that is, up to two words without a digit, and a sentence that repeats an earlier one.
"""

import re

from ..configs.engines import TINY
from ..stores.records import Prompt

SENTENCE_END = re.compile(r"(?<=[.!?])\s|\n")
COURTESY_WORDS = 2


def is_matchable(prompt: Prompt) -> bool:
    """Whether the sentences of answers to a prompt can be matched: only in the tiny world."""
    return prompt.source == TINY


def match_sentences(answer: str, reference: str) -> tuple[int, int]:
    """Return how many sentences of `answer` are in `reference`, and how many are not."""
    supported = frozenset(_normal(sentence) for sentence in SENTENCE_END.split(reference))
    sentences = dict.fromkeys(_normal(sentence) for sentence in _sentences(answer))
    right = sum(sentence in supported for sentence in sentences)
    return right, len(sentences) - right


def _sentences(answer: str) -> list[str]:
    label, colon, rest = answer.strip().partition(":")
    body = rest if colon and _is_courtesy(label) else answer
    return [sentence for sentence in SENTENCE_END.split(body) if not _is_courtesy(sentence)]


def _is_courtesy(sentence: str) -> bool:
    short = len(sentence.split()) <= COURTESY_WORDS
    return short and not any(character.isdigit() for character in sentence)


def _normal(sentence: str) -> str:
    return " ".join(sentence.casefold().split()).rstrip(".!? ")
