"""The vocabulary of figures: one name, one unit and one judge of each, the same everywhere.

A new figure is a line here. A metric that is not here keeps its own name.

Figures of different judges are kept apart: `judges_of` reads the judge of each figure from a run's
fingerprint.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from ....configs.annotation import INITIAL
from ....critics.status import MATH_UNDECIDED, MATH_UNMARKED
from ....stores.keys import Json, digest
from ....stores.lake import RunReader

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


ANSWER_JUDGE = "judge of answers"


def judge_kind(metric: str) -> str | None:
    """Return the kind of judge that measures a metric; None if it is measured without one."""
    return term_of(metric).judge or (ANSWER_JUDGE if ":" in metric else None)


def follows(run: RunReader) -> bool:
    """Whether each iteration's policy judged its own answers; held-out ones the critic rated."""
    config = cast("dict[str, Any]", json.loads(run.journal.meta("config") or "{}"))
    return bool(config.get("recipe", {}).get("judge") == "follows")


def judges_of(run: RunReader) -> dict[str, str]:
    """Return the identity of each kind of judge of a run."""
    fingerprint = cast("dict[str, Any]", json.loads(run.journal.meta("fingerprint") or "{}"))
    config = cast("dict[str, Any]", json.loads(run.journal.meta("config") or "{}"))
    critic, assessment = config.get("critic", {}), config.get("assessment", {})
    own = {VERIFIER: critic.get("verifier"), "files": fingerprint.get("own")}
    settings = {
        name: critic.get(name) for name in ("kind", "aspects", "task_aspects", "use_reference")
    }
    reference = fingerprint.get("reference")
    compared = {name: fingerprint.get(name) for name in ("annotators", "pool")}
    against: Json = fingerprint.get("policy") if reference == INITIAL else reference
    if isinstance(reference, dict):
        places = cast("dict[str, Json]", reference)
        first = fingerprint.get("policy")
        against = {
            eval_set: first if place == INITIAL else place for eval_set, place in places.items()
        }
    judges: dict[str, Json] = {
        VERIFIER: own,
        CRITIC: [fingerprint.get("critic"), fingerprint.get("templates"), settings, own],
        REWARD_MODEL: fingerprint.get("reward"),
        ANNOTATORS: [compared, assessment.get("annotators"), against],
        ANSWER_JUDGE: fingerprint.get("scores"),
        ORACLE: assessment.get("oracle"),
        START: fingerprint.get("policy"),
    }
    return {kind: digest(judge) for kind, judge in judges.items()}
