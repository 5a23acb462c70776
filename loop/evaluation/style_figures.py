"""Figures of an answer's style, which no judge is asked for: openers, length, lists, repetition.

What opens an answer, and which phrases are stock, is learned from the answers themselves: no list
of a language's flourishes is needed.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|\w+|[^\w\s]")
"""A word, or a mark; of scripts without spaces, a character."""
ITEM = re.compile(r"^\s*(?:[-*•]|\d{1,2}[.)])\s+\S", re.MULTILINE)
MARKUP = re.compile(r"^#{1,6} |\*\*[^*\n]+\*\*|^```|^\|.*\|", re.MULTILINE)
OPENER_WORDS = 3
ENDS = frozenset(".!?,:;…。!?,:;-")
GRAM = 3
FEWEST_LINES = 2
COMMON = 0.05
"""The share of answers that must open alike, or share a phrase, before it counts as a habit."""

Figure = Callable[[str], float]


def words(text: str) -> list[str]:
    """Return a text's words and marks, in small letters."""
    return WORD.findall(text.lower())


def opener(text: str) -> str:
    """Return how a text begins: up to its first mark, or its first words."""
    begun = list[str]()
    for word in words(text[:200]):
        begun.append(word)
        if word in ENDS or len(begun) == OPENER_WORDS:
            break
    return " ".join(begun)


def new_openers(before: Iterable[str], after: Iterable[str]) -> frozenset[str]:
    """Return the openers whose share of the answers has grown to one that is a habit."""
    old, new = Counter(map(opener, before)), Counter(map(opener, after))
    was, now = max(1, old.total()), max(1, new.total())
    return frozenset(
        begun
        for begun, times in new.items()
        if times / now >= COMMON and times / now - old[begun] / was >= COMMON
    )


def grams(text: str) -> list[tuple[str, ...]]:
    """Return the sequences of three words of a text."""
    said = words(text)
    return [tuple(said[i : i + GRAM]) for i in range(len(said) - GRAM + 1)]


def stock_phrases(texts: Sequence[str]) -> frozenset[tuple[str, ...]]:
    """Return the sequences of words that answers to different prompts share."""
    times = Counter(gram for text in texts for gram in set(grams(text)))
    least = max(FEWEST_LINES, COMMON * len(texts))
    return frozenset(gram for gram, count in times.items() if count >= least)


def stock(text: str, phrases: frozenset[tuple[str, ...]]) -> float:
    """Return the share of a text that is stock phrases."""
    found = grams(text)
    return sum(gram in phrases for gram in found) / len(found) if found else 0.0


def repetition(text: str) -> float:
    """Return the share of a text's sequences of three words that it has said before."""
    found = grams(text)
    return 1 - len(set(found)) / len(found) if found else 0.0


def distinct(texts: Iterable[str]) -> float:
    """Return distinct-2 of all texts: the share of pairs of words that are different ones."""
    pairs = list[tuple[str, str]]()
    for text in texts:
        said = words(text)
        pairs += pairwise(said)
    return len(set(pairs)) / len(pairs) if pairs else 1.0


def length(text: str) -> float:
    """Return the logarithm of a text's length in characters."""
    return math.log(1 + len(text))


def lists(text: str) -> float:
    """Return 1 if a text has a list, else 0."""
    return float(len(ITEM.findall(text)) >= FEWEST_LINES)


def markup(text: str) -> float:
    """Return 1 if a text has headings, bold words, tables or blocks of code, else 0."""
    return float(MARKUP.search(text) is not None)


PLAIN: Mapping[str, Figure] = {
    "length": length,
    "lists": lists,
    "markup": markup,
    "repetition": repetition,
}
"""The figures that need no other texts."""
