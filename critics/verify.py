"""The verifier: verdicts without a model, for evaluation and as a critic.

Math compares the final answer with the reference's, and any prompt with checks is checked. Facts of
the tiny world are matched sentence by sentence; other facts need a judge (`facts`) and are
undecided here. As a critic (`VerifierCritic`) it rates each check, or the aspect of the task. If
the user's verifier is configured, its ratings are used.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Self, cast

from ..configs.mistakes import ConfigError
from ..configs.own_function import OwnFunction, own_function
from ..stores.keys import Json, canonical_json, digest
from ..stores.records import AspectRating, Check, Prompt, Rating, storable
from .checks import (
    ASKED,
    FAMILIES,
    JSON_CHECKS,
    NO_VALUE,
    fulfils,
    fulfils_loosely,
    read_json,
    remark,
)
from .facts.fact_score import is_matchable, match_sentences
from .feedback import AspectRatings
from .judge import Reading
from .math_answers import Final, answer_to, final_answer, reference_answer
from .math_limits import too_large
from .math_numbers import quick_equal
from .math_offers import one_of
from .math_pool import MathPool
from .status import MATH_ACCURACY, MATH_UNDECIDED, MATH_UNMARKED, Status

FIELD = "critic.verifier"
PROMPT_AND_TEXT = 2


def own_verifier(place: str | None) -> OwnFunction | None:
    """Import the verifier at a place, if one is configured.

    Raises:
        ConfigError: if it cannot be used.
    """
    if place is None:
        return None
    try:
        return own_function(place, arguments=PROMPT_AND_TEXT)
    except ConfigError as error:
        raise ConfigError(f"{FIELD}: {error}") from error


def own_rating(verifier: OwnFunction, prompt: Prompt, text: str) -> tuple[Rating, str] | None:
    """Return the rating of a candidate and the comment on it; None if the verifier returns None.

    Raises:
        ConfigError: if it raises anything, or returns anything else.
    """
    result: object = verifier(prompt, text)
    if result is None:
        return None
    match cast("tuple[object, ...]", result if isinstance(result, tuple) else (result, "")):
        # True and 1.0 are equal to 1, but their meaning here would be a guess.
        case (-1 | 0 | 1 as rating, str(comment)) if type(rating) is int:
            return cast("Rating", rating), storable(comment)
        case _:
            raise ConfigError(
                f"{FIELD}: {verifier.place} returned {result!r:.60} for the prompt "
                f"{prompt.prompt_id}: it returns -1, 0 or 1, one of these with a comment, as "
                "(1, 'right'), or None"
            )


MATH, FACTS = "math", "facts"
DEFAULT_ASPECT = "Correctness"
SENTENCE_MATCH = "sentence_match"
OWN = "verified"
"""The metric of the user's own verifier: the share of answers that it rates 1."""
SEMANTICS = 6
"""Raised when the same answer may get another verdict, so that stored ones are recomputed."""
LIMIT_S = 1.0
"""The processor time that a comparison of two formulas may take."""

REMARKS = {
    "right": "The final answer is right.",
    "wrong": "The final answer is wrong.",
    "supported": "All claims are supported.",
    "partly_supported": "Some claims are not supported.",
    "unsupported": "Most claims are not supported.",
    "no_claims": "There is no claim.",
    "fulfilled": "All demands are met.",
    "partly_fulfilled": "Some demands are not met.",
    "unfulfilled": "No demand is met.",
}
EQUAL, DIFFERENT = "equal", "different"
"""The outcomes of comparisons that decide."""
CHECKED = ("fulfilled", "partly_fulfilled", "unfulfilled")
"""The reasons of the ratings 1, 0 and -1 by checks."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one answer.

    `metrics` holds `math_accuracy` (0 or 1, if the comparison was decided), `math_undecided` (1 if
    it was not), `math_unmarked` (1 if the final answer was not announced), `sentence_match` (share
    of sentences that are right) with `sentences_right` and `sentences_wrong`, `general_fulfilled`
    (1 if every check is met), `json_valid` and `self_identified`, each if it applies to the prompt;
    for IFEval's checks also `checks_fulfilled` (the share that is met), and both with the ending
    `_loose`. An answer without claims counts 0 there, as it does not show the requested ability.
    `rating` is None if the verifier could not decide; `reason` explains it. The user's verifier
    adds `verified` (1 if it rates 1), and `remark` is its comment. `checks` rates each of the
    prompt's checks, in its order: 1 or -1, with the demand and the finding.
    """

    metrics: tuple[tuple[str, float], ...]
    rating: Rating | None
    reason: str
    remark: str | None = None
    checks: tuple[AspectRating, ...] = ()


def is_factual(prompt: Prompt) -> bool:
    """Whether answers to a prompt state facts that its reference could support."""
    return prompt.task == FACTS and prompt.reference is not None


class Verifier:
    """Verifies answers in batches; a pool of processes compares math beyond plain numbers.

    Close it after use, or use it as a context manager. The pool starts with the first comparison
    that needs it, and works for one thread at a time.
    """

    def __init__(
        self,
        own: OwnFunction | None = None,
        *,
        sentence_match: bool = False,
        workers: int = 2,
        limit_s: float = LIMIT_S,
        on_timeout: Callable[[int, int], None] = lambda _timeouts, _verified: None,
    ) -> None:
        """Prepare a verifier whose comparisons have `limit_s` of a worker's processor time each.

        With `sentence_match` the tiny world's facts are verified. If `own` is given, its ratings
        are used. After each comparison that takes too long, `on_timeout` is called with the number
        of timeouts and the number of verified math answers; an exception from it ends the
        verification.
        """
        self.own = own
        self.limit_s = limit_s
        self.sentence_match = sentence_match
        self._mutex = threading.Lock()
        self._pool = MathPool(workers, limit_s)
        self._on_timeout = on_timeout
        self._timeouts = self._verified = 0

    def __enter__(self) -> Self:
        """Return the verifier itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the pool."""
        self.close()

    def close(self) -> None:
        """End the pool's processes; a later batch starts new ones."""
        self._pool.close()

    @property
    def pool_started(self) -> bool:
        """Whether math-verify has been needed."""
        return self._pool.started

    @property
    def settings(self) -> list[Json]:
        """The user's settings of how answers are verified."""
        limit: list[Json] = [] if self.limit_s == LIMIT_S else [{"limit_s": self.limit_s}]
        matched: list[Json] = [SENTENCE_MATCH] if self.sentence_match else []
        return [*limit, *matched, *([self.own.identity] if self.own else [])]

    def params(self, others: Json) -> Json:
        """Return the keys' parameters of a stage that verifies: `others`, and how it verifies."""
        return [others, SEMANTICS, *self.settings]

    def can_verify(self, prompt: Prompt) -> bool:
        """Whether it has a verdict on answers to a prompt."""
        if self.own is not None or prompt.checks:
            return True
        return self._matches(prompt) or (prompt.task == MATH and prompt.reference is not None)

    def _matches(self, prompt: Prompt) -> bool:
        return self.sentence_match and is_factual(prompt) and is_matchable(prompt)

    def verify(self, items: Sequence[tuple[Prompt, str]]) -> list[Verdict]:
        """Return the verdict on each (prompt, answer).

        Raises:
            MathVerifyMissingError: if a comparison needs math-verify and it is not installed.
            ConfigError: if the user's own verifier fails.
        """
        verdicts = self.check(items)
        if self.own is None:
            return verdicts
        return [
            _with_rating(verdict, own_rating(self.own, *item))
            for verdict, item in zip(verdicts, items, strict=True)
        ]

    def check(self, items: Sequence[tuple[Prompt, str]]) -> list[Verdict]:
        """Return the verdict on each (prompt, answer) by its reference and its checks alone.

        Raises:
            MathVerifyMissingError: if a comparison needs math-verify and it is not installed.
        """
        with self._mutex:
            math = self._compare(items)
        return [
            self._verdict(prompt, answer, math.get(number))
            for number, (prompt, answer) in enumerate(items)
        ]

    def _compare(self, items: Sequence[tuple[Prompt, str]]) -> Mapping[int, Verdict]:
        """Return the verdict on each answer to a math prompt, by the item's number.

        Answers are compared quickly, by limits, or by math-verify.
        """
        finals = dict[int, tuple[Final, Final]]()
        for number, (prompt, answer) in enumerate(items):
            if prompt.task == MATH and prompt.reference is not None:
                expected = reference_answer(prompt.reference)
                found = answer_to(expected, final_answer(answer))
                finals[number] = expected, one_of(expected, found)
        quick = {number: _without_process(*final) for number, final in finals.items()}
        for outcome in filter(None, quick.values()):
            self._count(outcome)
        jobs = [finals[number] for number, outcome in quick.items() if outcome is None]
        compared = iter(self._pool.compare(jobs, self._count))
        return {
            number: _math_verdict(outcome or next(compared), marked=finals[number][1].marked)
            for number, outcome in quick.items()
        }

    def _count(self, outcome: str) -> None:
        """Count a verified math answer, and report a timeout at once: each costs its full time."""
        self._verified += 1
        if outcome == Status.TIMEOUT.value:
            self._timeouts += 1
            self._on_timeout(self._timeouts, self._verified)

    def _verdict(self, prompt: Prompt, answer: str, math: Verdict | None) -> Verdict:
        """Combine the parts that apply to the prompt; the first one, its aspect, rates it."""
        parts = [] if math is None else [math]
        if is_factual(prompt):
            parts.append(_match_answer(answer, prompt) if self._matches(prompt) else UNJUDGED)
        if prompt.checks:
            parts.append(_run_checks(prompt, answer))
        if not parts:
            return Verdict((), None, Status.NO_CHECK.value)
        metrics = tuple(metric for part in parts for metric in part.metrics)
        return Verdict(metrics, parts[0].rating, parts[0].reason, checks=parts[-1].checks)


def _without_process(expected: Final, given: Final) -> str | None:
    """Return the outcome of a comparison that needs no math-verify; None for others."""
    equal = quick_equal(expected, given)
    if equal is not None:
        return EQUAL if equal else DIFFERENT
    return Status.TOO_LARGE.value if too_large(given) and not too_large(expected) else None


def _math_verdict(outcome: str, *, marked: bool) -> Verdict:
    """Return the verdict by the outcome of a comparison: other outcomes than two decide nothing."""
    metrics = (
        (MATH_UNDECIDED, float(outcome not in (EQUAL, DIFFERENT))),
        (MATH_UNMARKED, float(not marked)),
    )
    if outcome == EQUAL:
        return Verdict(((MATH_ACCURACY, 1.0), *metrics), 1, "right")
    if outcome == DIFFERENT:
        return Verdict(((MATH_ACCURACY, 0.0), *metrics), -1, "wrong")
    return Verdict(metrics, None, outcome)


def _with_rating(verdict: Verdict, rated: tuple[Rating, str] | None) -> Verdict:
    """Replace the rating by the user's verifier's; the other metrics stay."""
    if rated is None:
        return Verdict(verdict.metrics, None, Status.NO_CHECK.value)
    rating, comment = rated
    return Verdict((*verdict.metrics, (OWN, float(rating == 1))), rating, OWN, comment)


UNJUDGED = Verdict((), None, Status.NO_JUDGE.value)
"""No verdict on facts, which a judge must compare with the reference."""


def _match_answer(answer: str, prompt: Prompt) -> Verdict:
    right, wrong = match_sentences(answer, prompt.reference or "")
    metrics = (
        (SENTENCE_MATCH, right / (right + wrong) if right + wrong else 0.0),
        ("sentences_right", float(right)),
        ("sentences_wrong", float(wrong)),
    )
    if right + wrong == 0:
        # An answer without claims fails: otherwise a policy would learn to avoid claims.
        return Verdict(metrics, -1, "no_claims")
    if wrong == 0:
        return Verdict(metrics, 1, "supported")
    if right >= wrong:
        return Verdict(metrics, 0, "partly_supported")
    return Verdict(metrics, -1, "unsupported")


def _run_checks(prompt: Prompt, answer: str) -> Verdict:
    met = [fulfils(answer, check) for check in prompt.checks]
    checks = tuple(_each_check(prompt.checks, answer, met))
    metrics = [("general_fulfilled", float(all(met)))]
    if any(check.kind in JSON_CHECKS for check in prompt.checks):
        metrics.append(("json_valid", float(read_json(answer) is not NO_VALUE)))
    if any(check.kind in FAMILIES for check in prompt.checks):
        metrics += _of_ifeval(prompt, answer, met)
    identity = [ok for ok, c in zip(met, prompt.checks, strict=True) if c.kind == "self_identifies"]
    if identity:
        metrics.append(("self_identified", float(all(identity))))
    rating: Rating = 1 if all(met) else 0 if any(met) else -1
    return Verdict(tuple(metrics), rating, CHECKED[1 - rating], checks=checks)


def _each_check(
    checks: Sequence[Check], answer: str, met: Sequence[bool]
) -> Iterator[AspectRating]:
    """Rate each check; a repeated kind has a number after its name."""
    seen = Counter[str]()
    for check, ok in zip(checks, met, strict=True):
        seen[check.kind] += 1
        name = check.kind if seen[check.kind] == 1 else f"{check.kind} {seen[check.kind]}"
        comment = remark(check, answer, met=ok)
        yield AspectRating(name=name, rating=1 if ok else -1, comment=comment)


def _of_ifeval(prompt: Prompt, answer: str, met: list[bool]) -> list[tuple[str, float]]:
    """Return IFEval's other metrics, in addition to the prompts that are fully met, strictly."""
    pairs = zip(met, prompt.checks, strict=True)
    loosely = [ok or fulfils_loosely(answer, check) for ok, check in pairs]
    return [
        ("checks_fulfilled", fmean(met)),
        ("general_fulfilled_loose", float(all(loosely))),
        ("checks_fulfilled_loose", fmean(loosely)),
    ]


@dataclass(frozen=True, slots=True)
class VerifierCritic:
    """The verifier as a critic: it rates each check of a prompt, or the aspect of the task."""

    verifier: Verifier
    task_aspects: Mapping[str, str]

    @property
    def digest(self) -> str:
        """Return the hash of all that shapes its critiques."""
        named = dict(self.task_aspects)
        return digest(["verifier", SEMANTICS, named, REMARKS, ASKED, *self.verifier.settings])

    def read(self, prompt: Prompt, verdict: Verdict) -> Reading[AspectRatings]:
        """Return the verdict as a reading."""
        name = self.task_aspects.get(prompt.task, DEFAULT_ASPECT)
        if verdict.rating is None:
            return Reading(verdict.reason, (AspectRating(name=name, rating=None, comment=""),))
        # The user's verifier comments itself.
        comment = REMARKS[verdict.reason] if verdict.remark is None else verdict.remark
        rated = AspectRating(name=name, rating=verdict.rating, comment=comment)
        # A prompt with only checks gets its checks' ratings.
        of_checks = verdict.checks and verdict.reason in CHECKED
        return Reading(
            Status.SCORED.value, verdict.checks if of_checks else (rated, *verdict.checks)
        )

    def text(self, prompt: Prompt, verdict: Verdict) -> str:
        """Return the critique as a feedback model would write it, for the policy to reflect on."""
        if verdict.rating is None:
            return ""
        rated = self.read(prompt, verdict).value
        lines = [f"{a.name}: {a.comment} Score: {a.rating}" for a in rated]
        return "\n".join([*lines, canonical_json({a.name: a.rating for a in rated})])
