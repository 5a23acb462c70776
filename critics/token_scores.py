"""A score from a judge's probabilities: the expectation over the tokens that could have begun it.

G-Eval and AlpacaEval 2 read, in place of the token that was drawn, how likely each token was there.
The tokens of the scale share what probability they have; unless that is most of it, the judge was
about to write something else, and there is no score.
"""

import math
from collections.abc import Mapping

from .status import Status, UnreadError

LEAST_SHARE = 0.5
"""The least probability that the tokens of the scale must have together."""
WORD_STARTS = " \u0120\u2581"
"""What tokenizers put ahead of a token that begins a word."""


def expected_score(logprobs: Mapping[str, float], values: Mapping[str, float]) -> float:
    """Return the expected value of the next token.

    Args:
        logprobs: The most likely tokens with the logarithms of their probabilities, in nats.
        values: The value of each token of the scale, such as `{"1": 1.0, ..., "5": 5.0}`. No token
            may begin another one: a "1" says nothing where "10" is possible.

    Raises:
        ValueError: if a token of the scale begins another one.
        UnreadError: if the scale has less than `LEAST_SHARE`, or more than all there is.
    """
    if any(a != b and b.startswith(a) for a in values for b in values):
        raise ValueError("a token of the scale begins another one")
    shares = dict.fromkeys(values, 0.0)
    for token, logprob in logprobs.items():
        word = token.strip(WORD_STARTS)
        if word in shares:
            shares[word] += math.exp(logprob)
    total = math.fsum(shares.values())
    if not LEAST_SHARE <= total <= 1 + 1e-6:
        raise UnreadError(Status.MISSING if total < LEAST_SHARE else Status.MALFORMED)
    return math.fsum(values[word] * share for word, share in shares.items()) / total
