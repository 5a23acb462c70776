"""Facts: which claims of an answer are in the reference abstract.

A claim is a sentence. A sentence counts as right if the abstract has the same sentence up to
case, white space and end marks; a paraphrase does not. So the share of right claims is exact for
worlds whose abstracts list the facts in the words that answers use (the tiny world), and a lower
bound elsewhere. Not claims: a label or courtesy at the start ("Answer:", "Sure!"), that is, up to
two words without a digit, and a sentence that repeats an earlier one.
"""

import re
from dataclasses import dataclass

SENTENCE_END = re.compile(r"(?<=[.!?])\s|\n")
COURTESY_WORDS = 2


@dataclass(frozen=True, slots=True)
class Claims:
    """How many claims of an answer the reference supports, and how many it does not."""

    right: int
    wrong: int

    @property
    def share(self) -> float:
        """Return the share of right claims; an answer without claims has none."""
        total = self.right + self.wrong
        return self.right / total if total else 0.0


def check_claims(answer: str, reference: str) -> Claims:
    """Compare the claims of `answer` with the sentences of `reference`."""
    supported = frozenset(_normal(sentence) for sentence in SENTENCE_END.split(reference))
    claims = dict.fromkeys(_normal(sentence) for sentence in _claims(answer))
    right = sum(claim in supported for claim in claims)
    return Claims(right, len(claims) - right)


def _claims(answer: str) -> list[str]:
    label, colon, rest = answer.strip().partition(":")
    body = rest if colon and _is_courtesy(label) else answer
    return [sentence for sentence in SENTENCE_END.split(body) if not _is_courtesy(sentence)]


def _is_courtesy(sentence: str) -> bool:
    short = len(sentence.split()) <= COURTESY_WORDS
    return short and not any(character.isdigit() for character in sentence)


def _normal(sentence: str) -> str:
    return " ".join(sentence.casefold().split()).rstrip(".!? ")
