# pyright: basic
"""Clusters of prompts that are not independent: given ones, else near copies.

A policy's answers to ten wordings of one question are correlated, so the ten count as one whenever
an error is estimated. If a prompt names no cluster it is guessed: prompts belong together if they
have the same reference, differ only in numbers and names, or share most of their words. On GSM8K,
in which hardly two problems are alike, nearly all stay alone; the variations of SVAMP are grouped.
"""

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

import polars as pl

from ...stores.records import Prompt
from .contamination import MINIMA, grams, minima

ALIKE = 0.6
"""Texts that share so much of all their words are wordings, or variations, of one question."""
BAND = 3
"""Minima in a band: texts of similarity 0.6 miss each other in 6 of 1,000 cases."""
FEWEST_WORDS = 6
"""Texts with fewer different words are too short to be compared by meaning."""
TEMPLATE_WORDS = 4
"""Texts with fewer words left after removing numbers and names are not templates."""
SHOWN_WORDS = 8
"""A shorter reference, such as a bare result, may fit any question."""
MANY = 20
COMMON = 0.5
"""Among this many prompts, words in this share of them are an instruction common to all."""
SYSTEM = "system"
NUMBER = re.compile(r"[0-9]+(?:[.,/:][0-9]+)*")
NAME = re.compile(r"\b[^\W\d_a-z]\w*")
WORD = re.compile(r"[^\W\d_]+")


def clusters_of(prompts: Iterable[Prompt]) -> Mapping[str, str]:
    """Return the cluster of each prompt, by its id: the given one, or the id of one of the guessed.

    The order of the prompts does not matter.
    """
    every = {prompt.prompt_id: prompt for prompt in prompts}
    alone = [prompt for prompt in every.values() if prompt.cluster is None]
    # Of texts that may be alike each is compared with few others: which ones, no order may decide.
    alone.sort(key=lambda prompt: (_question_text(prompt), prompt.prompt_id))
    guessed = Groups(prompt.prompt_id for prompt in alone)
    for one, other in _links(alone):
        guessed.join(alone[one].prompt_id, alone[other].prompt_id)
    given = {name: p.cluster for name, p in every.items() if p.cluster is not None}
    return given | guessed.names()


class Groups:
    """Ids that are joined two by two; a group is called by the first of its ids."""

    def __init__(self, ids: Iterable[str]) -> None:
        self._of = {name: name for name in ids}

    def join(self, one: str, other: str) -> None:
        """Make the groups of two ids one."""
        first, second = sorted((self._name(one), self._name(other)))
        self._of[second] = first

    def names(self) -> dict[str, str]:
        """Return the name of the group of each id."""
        return {name: self._name(name) for name in self._of}

    def _name(self, one: str) -> str:
        while (above := self._of[one]) != one:
            self._of[one] = self._of[above]
            one = above
        return one


def _links(prompts: Sequence[Prompt]) -> Iterator[tuple[int, int]]:
    """Give pairs of prompts that belong together, by number."""
    texts = [_question_text(prompt) for prompt in prompts]
    yield from _equal([_reference_key(prompt.reference) for prompt in prompts])
    yield from _equal([_template(text) for text in texts])
    yield from _similar(texts)


def _question_text(prompt: Prompt) -> str:
    """Return the question, without the system's message."""
    return "\n".join(turn.content for turn in prompt.messages if turn.role != SYSTEM)


def _reference_key(reference: str | None) -> Hashable:
    words = (reference or "").split()
    return tuple(words) if len(words) >= SHOWN_WORDS else None


def _template(text: str) -> Hashable:
    """Return a text without its numbers and names; None if little is left."""
    rest = NAME.sub("@", NUMBER.sub("#", text))
    return " ".join(rest.split()) if len(WORD.findall(rest)) >= TEMPLATE_WORDS else None


def _equal(keys: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    first: dict[Hashable, int] = {}
    for number, key in enumerate(keys):
        if key is not None and first.setdefault(key, number) != number:
            yield first[key], number


def _similar(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Give pairs of texts that share most of their words."""
    every_gram = grams(pl.Series("text", texts, dtype=pl.String), 1).unique()
    if len(texts) >= MANY:
        every_gram = every_gram.filter(pl.len().over("gram") <= COMMON * len(texts))
    every_gram = every_gram.filter(pl.len().over("row") >= FEWEST_WORDS)
    words: dict[int, set[int]] = defaultdict(set)
    for row, gram in every_gram.iter_rows():
        words[row].add(gram)
    for one, other in _neighbours(minima(every_gram, len(texts))).iter_rows():
        shared = len(words[one] & words[other])
        if shared >= ALIKE * (len(words[one]) + len(words[other]) - shared):
            yield one, other


def _neighbours(signed: pl.DataFrame) -> pl.DataFrame:
    """Return the texts to compare each with: the first of a band, and the one before it."""
    bands = {
        str(first): pl.struct(signed.columns[first : first + BAND]).hash(seed=first)
        for first in range(0, MINIMA - BAND + 1, BAND)
    }
    keyed = signed.with_row_index("row").drop_nulls().select("row", **bands)
    band = keyed.unpivot(index="row", variable_name="at", value_name="band").sort("row")
    before = (pl.col("row").first(), pl.col("row").shift(1))
    both = [band.select("row", other=end.over("at", "band")) for end in before]
    return pl.concat(both).filter(pl.col("other") < pl.col("row")).unique().sort("row", "other")
