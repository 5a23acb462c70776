"""The vocabulary of figures: one name, one unit and one judge of each, the same everywhere.

A new figure is a line here. A metric that is not here keeps its own name.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ....critics.status import MATH_UNDECIDED, MATH_UNMARKED

VERIFIER, CRITIC, REWARD_MODEL = "verifier", "critic", "reward model"
ANNOTATORS, ORACLE, START = "annotators or reference", "oracle", "M_0"
RATING = "rating:"
"""The prefix of the metrics that are a critic's ratings, one for each aspect."""
LENGTH, CONTROLLED = "mean_length", "length_controlled_win_rate"
SUCCESSES = ("math_accuracy", "fact_score", "sentence_match", "general_fulfilled")
"""The verifier's metrics, by the kind of task."""
AGREEMENT = "critic_agreement"
PARTS = (
    *("sentences_right", "sentences_wrong", "abstained"),
    *("facts_supported", "facts_not_supported", "facts_irrelevant", "facts_unread"),
)
COUNTS = (AGREEMENT, *PARTS)
"""Metrics that do not measure a policy: parts of a figure, and measures of the critic."""


@dataclass(frozen=True, slots=True)
class Term:
    """A figure: its display name, who judges it, its unit, and whether more of it is better.

    A share is between 0 and 1, and shown in percent.
    """

    name: str
    label: str = ""
    judge: str | None = None
    share: bool = False
    decimals: int = 1
    better: bool = True


COMPARED = (
    Term("verified", judge=VERIFIER, share=True),
    Term("approval", judge=CRITIC, share=True),
    Term("reward", judge=REWARD_MODEL, decimals=2),
    Term("win_rate", "win-rate", ANNOTATORS, share=True),
    Term(CONTROLLED, "win-rate at equal length", ANNOTATORS, share=True),
    Term("true_score", "true score", ORACLE, decimals=2),
    Term("kl", "KL to M_0", START, decimals=2, better=False),
)
"""The figures that are listed first; then others by name, and the length."""
OTHERS = (
    *(Term(name, judge=VERIFIER, share=True) for name in SUCCESSES),
    *(
        Term(name, judge=VERIFIER, share=True, better=False)
        for name in (MATH_UNDECIDED, MATH_UNMARKED)
    ),
    *(Term(name, better=False) for name in PARTS),
    Term(AGREEMENT, judge=CRITIC, share=True, better=False),
    Term("json_valid", "valid JSON", share=True),
    Term("self_identified", "identity", share=True),
    Term("passed", share=True),
    Term("checks_fulfilled", share=True),
    Term("checks_fulfilled_loose", share=True),
    Term("general_fulfilled_loose", share=True),
    Term(LENGTH, "tokens", better=False),
)
VOCABULARY: Mapping[str, Term] = {term.name: term for term in (*COMPARED, *OTHERS)}
ORDER = [term.name for term in COMPARED]
SHARES = frozenset(name for name, term in VOCABULARY.items() if term.share)
NOT_BETTER = frozenset(name for name, term in VOCABULARY.items() if not term.better)
"""The figures of which more is not better."""


def term_of(figure: str) -> Term:
    """Return the label, unit and direction of a figure."""
    if figure.startswith(RATING):
        return Term(figure, judge=CRITIC, decimals=2)
    return VOCABULARY.get(figure) or Term(figure)
