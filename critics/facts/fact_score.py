"""FActScore: the share of an answer's statements that the reference supports (Min et al., 2023).

Per answer (Section 3.1) it is the number of supported statements over that of all judged ones.
Irrelevant statements are among these, as in the paper's figures by people: theirs add up to 100 %
with them (Section 3.3). Of an answer that abstains, that is, states nothing, there is no score: the
mean is over answers that respond, and the share of those that abstain is told beside it.
Statements whose verdict could not be read are left out and counted.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...stores.records import SCORED, Breakdown, Claim

FACT_SCORE, ABSTAINED, UNREAD = "fact_score", "abstained", "facts_unread"
BEYOND = "beyond_most"
"""The status of statements that were not judged, as the answer has more than `facts.most`."""
Metrics = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SupportCount:
    """How many statements of an answer have each verdict, and how many have none."""

    supported: int
    not_supported: int
    irrelevant: int
    unread: int

    @property
    def judged(self) -> int:
        """How many statements have a verdict."""
        return self.supported + self.not_supported + self.irrelevant

    @property
    def score(self) -> float | None:
        """The share of the judged statements that are supported; None if none was judged."""
        return self.supported / self.judged if self.judged else None


def counted(claims: Iterable[Claim]) -> SupportCount:
    """Count the verdicts on an answer's statements; those beyond the most are not counted."""
    verdicts = Counter(claim.verdict or _missing(claim) for claim in claims)
    return SupportCount(
        supported=verdicts["supported"],
        not_supported=verdicts["not_supported"],
        irrelevant=verdicts["irrelevant"],
        unread=verdicts[UNREAD],
    )


def _missing(claim: Claim) -> str:
    return BEYOND if claim.status == BEYOND else UNREAD


def fact_metrics(broken: Sequence[Breakdown], claims: Sequence[Claim]) -> Metrics:
    """Return the metrics of one answer: its score, the counts behind it, and if it abstains.

    There are none if it could not be broken up at all.
    """
    read = [row for row in broken if row.status == SCORED]
    if not read:
        return ()
    abstained = len(read) == len(broken) and not any(row.statements for row in read)
    count = counted(claims)
    unread = count.unread + len(broken) - len(read)
    metrics: Metrics = ((ABSTAINED, float(abstained)), (UNREAD, float(unread)))
    if count.score is None:
        return metrics
    return (
        (FACT_SCORE, count.score),
        ("facts_supported", float(count.supported)),
        ("facts_not_supported", float(count.not_supported)),
        ("facts_irrelevant", float(count.irrelevant)),
        *metrics,
    )
