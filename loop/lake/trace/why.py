"""Sentences on why a row to train on was made from a prompt's candidates, or why not."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from ....critics.grading.grade_reply import BY_NAME, FINE_GRAINED
from ....critics.status import Status
from ....stores.records import (
    SCORED,
    Critique,
    Demonstration,
    Grade,
    Order,
    Pair,
    PairingOutcome,
    Preference,
    UnpairedAnswer,
)
from ...data.binarize import BINARISATIONS, OVERALL
from ...data.judged_candidates import TRUSTED
from ...data.pairs import BY_REWARD, EXTREMES, RATED_EXTREMES
from ...data.training_rows import PREFERRED, made_by
from .story import Story

SHOWN: Mapping[Order, str] = {
    "as_given": "in this order",
    "swapped": "in the other order",
    "both": "in both orders",
}
LACKING: Mapping[str, str] = {
    "no_candidates": "the prompt has no candidates",
    "none_usable": "every candidate is truncated or empty",
    "all_identical": "all candidates that could be chosen have the same text as those that could "
    "be rejected",
    "none_rated": "no usable candidate has {judged}",
    "no_positive": "no candidate has 1 on all rated aspects",
    "no_negative": "{none_worse}",
    "no_demonstration": "no person has written an answer",
    "not_compared": "it has no two whole answers to compare",
    "unread": "no annotator's verdict could be read",
    "tied": "its answers are alike, have the same score, or no annotator preferred either",
}
"""Why a prompt gave no row to train on, by outcome."""
JUDGED: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(
        BY_REWARD,
        ("a reward", "every candidate with a reward is among the best: there is none to reject"),
    ),
    **dict.fromkeys(
        BINARISATIONS,
        (
            "a score: some of its grades could not be read",
            "only one candidate has a score, so there is nothing to compare it with",
        ),
    ),
    RATED_EXTREMES: (
        "ratings",
        "all usable candidates that are rated have the same mean rating",
    ),
}
"""What a rule reads of a candidate, and why it finds none to reject."""
_RATED = ("ratings", "no usable candidate has a rating of 0 or -1")
LOWEST: Mapping[str, str] = {
    EXTREMES: "the lowest rewards first",
    RATED_EXTREMES: "the lowest mean ratings first",
}
"""The order in which a rule takes rejected answers; other rules draw at random."""


def why_pair(story: Story, pair: Pair) -> str:
    """Return the rule, the rank and the margin of a pair, and the reason for each side."""
    rule = made_by(pair.rule)
    if rule == PREFERRED:
        both = {pair.chosen_id, pair.rejected_id}
        votes = [row for row in story.preferences if {row.first_id, row.second_id} == both]
        who = _chosen_by(votes[-1]) if votes else "who preferred it is not in this run"
        return f"rule {pair.rule}; {who}"
    if rule in BINARISATIONS:
        return _binarised_reason(story, pair, rule)
    worth = pair.chosen_reward, pair.rejected_reward
    if rule == RATED_EXTREMES:
        worth = _mean_rating(story, pair.chosen_id), _mean_rating(story, pair.rejected_id)
    margin = "no margin: a reward is missing" if story.rewards else "no margin without rewards"
    if worth[0] is not None and worth[1] is not None:
        margin = f"margin {worth[0] - worth[1]:+.3f} ({worth[0]:.3f} - {worth[1]:.3f})"
    others = "the rest" if rule in BY_REWARD else "the negatives"
    drawn = LOWEST.get(rule, f"drawn at random from {others}")
    chosen = _because(story, pair.chosen_id, pair.chosen_ratings, rule)
    rejected = _because(story, pair.rejected_id, pair.rejected_ratings, rule)
    return (
        f"rule {pair.rule}, {_rank(story, pair)}, {margin}; chosen for {chosen}; "
        f"rejected, {drawn}, for {rejected}"
    )


def _binarised_reason(story: Story, pair: Pair, rule: str) -> str:
    """Return the rule and the scores of a pair by grades, and the ratings behind them."""
    aspects = (OVERALL,) if rule == OVERALL else FINE_GRAINED

    def side(identity: str, score: float | None) -> str:
        mine = (g for g in story.grades if g.candidate_id == identity and g.aspect in aspects)
        ratings = ", ".join(map(rated_as, mine)) or "its grades are not in this run"
        return f"{ratings}, " + ("no score" if score is None else f"score {score:.3f}")

    return (
        f"rule {pair.rule}; chosen with {side(pair.chosen_id, pair.chosen_reward)}; "
        f"rejected with {side(pair.rejected_id, pair.rejected_reward)}"
    )


def rated_as(grade: Grade) -> str:
    """Return a grade's aspect and rating, or why it has none."""
    if grade.status == Status.NOT_APPLICABLE:
        return f"{grade.aspect} does not apply"
    if grade.rating is None or grade.status != SCORED:
        return f"{grade.aspect} unscored: {grade.status}"
    scale = BY_NAME.get(grade.aspect)
    of = "" if scale is None else f" of {scale.best}"
    return f"{grade.aspect} {grade.rating:g}{of}"


def _chosen_by(row: Preference) -> str:
    if row.flipped:
        return f"chosen by a coin in place of {row.annotator} ({row.preference_id})"
    return f"chosen by {row.annotator} ({row.preference_id}), shown {SHOWN[row.order]}"


def why_demonstration(story: Story, row: Demonstration) -> str:
    """Return the rule and the rank of a demonstration, and the reason for it."""
    compared = [p for p in story.preferences if row.candidate_id in (p.first_id, p.second_id)]
    if row.rule == PREFERRED and compared:
        return f"rule {row.rule}; {_chosen_by(compared[-1])}"
    reward = "no reward" if row.reward is None else f"reward {row.reward:.3f}"
    because = _because(story, row.candidate_id, row.ratings, row.rule)
    return f"rule {row.rule}, {_rank(story, row)}, {reward}; shown for {because}"


def why_unpaired(story: Story, row: UnpairedAnswer) -> str:
    """Return the rule of an unpaired answer, its side, and the reason for it."""
    side = "a success" if row.label else "a failure"
    return f"rule {row.rule}; {side} for {_because(story, row.candidate_id, row.ratings, row.rule)}"


def why_outcome(row: PairingOutcome) -> str:
    """Return how many rows pairing made from a prompt, or why it made none."""
    line = f"iteration {row.iteration}, rule {row.rule}: {row.outcome}, {row.made} made"
    if row.made:
        return line
    judged, none_worse = JUDGED.get(made_by(row.rule), _RATED)
    lacking = LACKING.get(row.outcome, "nothing was made of it")
    return f"{line}: {lacking.format(judged=judged, none_worse=none_worse)}"


def critiques_of(story: Story, candidate_id: str) -> list[Critique]:
    """Return the critiques of a candidate."""
    return [c for c in story.critiques if c.candidate_id == candidate_id]


def _rank(story: Story, row: Pair | Demonstration) -> str:
    """Return the rank of a row within its prompt, the best by reward first."""
    if made_by(row.rule) in BY_REWARD:
        of = "highest rewards first"
    elif made_by(row.rule) == RATED_EXTREMES:
        of = "highest mean ratings first"
    else:
        own = (c for c in story.candidates if c.iteration == row.iteration and c.kind != "greedy")
        usable = {c.candidate_id for c in own if c.usable}
        order = "highest rewards first" if story.rewards else "in random order, without rewards"
        of = f"{len(usable & {*story.successes})} positive, {order}"
    return f"rank {row.rank} ({of})"


def _because(story: Story, candidate_id: str, ratings: Sequence[int], rule: str) -> str:
    """Return the ratings that put a candidate on its side."""
    if rule in BY_REWARD:
        return "its reward alone"
    critiques = _decisive(story, candidate_id)
    if rule == RATED_EXTREMES:
        means = ", ".join(f"{_mean_of(c):.3f}" for c in critiques)
        return f"the mean rating of {len(critiques)} critiques ({means})"
    if not critiques:
        return f"ratings {', '.join(map(str, ratings)) or 'none'}"
    failed = "; ".join(found for c in critiques if (found := _failures(c)))
    reason = failed or f"1 on all rated aspects ({len(ratings)})"
    return reason if len(critiques) == 1 else f"{reason} (by {len(critiques)} critiques)"


def _failures(critique: Critique) -> str:
    """Return the aspects that are rated 0 or -1, with their ratings."""
    return ", ".join(f"{a.name} {a.rating}" for a in critique.aspects if a.rating in (0, -1))


def _decisive(story: Story, candidate_id: str) -> list[Critique]:
    """Return the critiques that decide on a candidate: people's, or else a model's."""
    scored = [c for c in critiques_of(story, candidate_id) if c.status == SCORED]
    people = {c.critic: c for c in scored if c.critic.startswith(TRUSTED)}
    if people and story.deciding.people == "decide":
        return list(people.values())
    models = [c for c in scored if not c.critic.startswith(TRUSTED)]
    return models if story.deciding.agreement else models[-1:]


def _mean_of(critique: Critique) -> float:
    return fmean(a.rating for a in critique.aspects if a.rating is not None)


def _mean_rating(story: Story, candidate_id: str) -> float | None:
    """Return the mean of the means of the critiques that decide on a candidate."""
    found = _decisive(story, candidate_id)
    return fmean(map(_mean_of, found)) if found else None


def reasons(story: Story) -> dict[str, str]:
    """Return the reason for each row to train on, by id, and each iteration's yield."""
    return {
        **{pair.pair_id: why_pair(story, pair) for pair in story.pairs},
        **{row.demonstration_id: why_demonstration(story, row) for row in story.demonstrations},
        **{row.unpaired_id: why_unpaired(story, row) for row in story.unpaired_answers},
        **{f"iteration {y.iteration}, {y.rule}": why_outcome(y) for y in story.pairing_outcomes},
    }
