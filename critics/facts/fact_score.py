"""FActScore: the share of an answer's statements that the reference supports (Min et al., 2023).

Per answer (Section 3.1) it is the number of supported statements divided by the number of judged
ones. Irrelevant statements count as judged, as in the paper's human evaluation, whose figures add
up to 100 % with them (Section 3). An answer that abstains, that is, states nothing, is unscored:
the mean is over answers that respond, and the share of abstentions is reported separately.
Statements whose verdict could not be read are left out and counted.

FActScore asks about one sentence at a time; here sentences of up to `LENGTH` characters share a
question: a passage. A longer sentence is cut at a space.

In the tiny world, whose abstracts list the facts in the words that answers use, sentences are
matched instead: one counts as right if the abstract has the same sentence up to case, white space
and end marks. In other data a true paraphrase would count as wrong. Not counted are a label or
courtesy at the start ("Answer:", "Sure!"), that is, up to two words without a digit, and a sentence
that repeats an earlier one.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from ...configs.engines import TINY
from ...stores.records import SCORED, Prompt

LENGTH = 400
"""Characters of sentences that share a question; a longer sentence gets a separate one."""
LONGEST = 2_000
"""Characters of a passage, however long its sentence is."""
_END = re.compile(r"(?<=[.!?])\s+|(?<=[\u3002\uff01\uff1f])|\n+")


def passages(answer: str) -> list[str]:
    """Return the passages of an answer, in order; none of a blank one."""
    found, held = list[str](), ""
    for piece in _pieces(answer):
        joined = f"{held} {piece}".strip()
        if held and len(joined) > LENGTH:
            found.append(held)
            joined = piece
        held = joined
    return [*found, held] if held else found


def _pieces(answer: str) -> Iterator[str]:
    """Yield the sentences of a text, the overlong ones in pieces."""
    for sentence in map(str.strip, _END.split(answer)):
        rest = sentence
        while len(rest) > LONGEST:
            cut = rest.rfind(" ", 1, LONGEST + 1)
            end = cut if cut > 0 else LONGEST
            yield rest[:end]
            rest = rest[end:].strip()
        if rest:
            yield rest


FACT_SCORE, ABSTAINED, UNREAD = "fact_score", "abstained", "facts_unread"
BEYOND = "beyond_most"
"""The status of statements that were not judged, as the answer has more than `facts.most`."""
Metrics = tuple[tuple[str, float], ...]
Said = tuple[str | None, str]
"""The verdict on a statement, and its status."""
BrokenUp = tuple[str, int]
"""The status of a passage, and how many statements it has."""


def fact_metrics(passages: Sequence[BrokenUp], claims: Iterable[Said]) -> Metrics:
    """Return the metrics of one answer: its score, the counts behind it, and if it abstains.

    They are empty if no passage of the answer could be broken up.
    """
    read = [statements for status, statements in passages if status == SCORED]
    if not read:
        return ()
    missing = len(passages) - len(read)
    counts = Counter(verdict or status for verdict, status in claims if status != BEYOND)
    judged = {name: float(counts[name]) for name in ("supported", "not_supported", "irrelevant")}
    total = sum(judged.values())
    metrics: Metrics = (
        (ABSTAINED, float(not missing and not any(read))),
        (UNREAD, counts.total() - total + missing),
    )
    if not total:
        return metrics
    named = ((f"facts_{name}", count) for name, count in judged.items())
    return ((FACT_SCORE, judged["supported"] / total), *named, *metrics)


SENTENCE_END = re.compile(r"(?<=[.!?])\s|\n")
COURTESY_WORDS = 2


def is_matchable(prompt: Prompt) -> bool:
    """Whether the sentences of answers to a prompt can be matched: only in the tiny world."""
    return prompt.source == TINY


def match_sentences(answer: str, reference: str) -> tuple[int, int]:
    """Return how many sentences of `answer` are in `reference`, and how many are not."""
    supported = frozenset(_normal(sentence) for sentence in SENTENCE_END.split(reference))
    label, colon, rest = answer.strip().partition(":")
    body = rest if colon and _is_courtesy(label) else answer
    stated = (sentence for sentence in SENTENCE_END.split(body) if not _is_courtesy(sentence))
    sentences = dict.fromkeys(map(_normal, stated))
    right = sum(sentence in supported for sentence in sentences)
    return right, len(sentences) - right


def _is_courtesy(sentence: str) -> bool:
    short = len(sentence.split()) <= COURTESY_WORDS
    return short and not any(character.isdigit() for character in sentence)


def _normal(sentence: str) -> str:
    return " ".join(sentence.casefold().split()).rstrip(".!? ")
