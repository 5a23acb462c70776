"""How M_t's answers differ in style from M_0's, and whether what it was trained on prefers that.

A style that moves far is an alarm where training prefers it: the policy learns how to say, beside
what to say. It stops a run only where a judge approves more and nothing verified has been gained.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean

from ...stores.records import Alarm
from ..lake.statistics.sign_flips import chance_of_rise, summed
from .observed import (
    CRITIC,
    ERROR_RATE,
    LEAST_CHANGE,
    REWARD,
    Observation,
    ObservedLessons,
    ObservedPolicy,
    Shift,
    percent,
)
from .style_figures import PLAIN, Figure, distinct, new_openers, opener, stock, stock_phrases

STYLE = "style"
OPENER, STOCK, LENGTH, DISTINCT = "opener", "stock", "length", "distinct"
FLOORS: Mapping[str, float] = {OPENER: 0.25, "lists": 0.25, "markup": 0.25, LENGTH: 0.2}
"""The smallest spread of a figure: where M_0's answers are all alike, a few others are no alarm."""
FAR = 1.0
"""Standard deviations among M_0's answers of one family by which a style figure may move."""
FLOOR = 0.1
WORDED: Mapping[str, str] = {
    OPENER: "of its answers open in ways that were rare",
    STOCK: "of what it says is phrases that its answers to other prompts share",
    LENGTH: "characters are in a typical answer",
    "lists": "of its answers have a list",
    "markup": "of its answers have headings, bold words, tables or code",
    "repetition": "of what it says it has said in the same answer",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StyleChange:
    """A figure of M_0's and of M_t's answers, and of the chosen and the rejected.

    `moved` counts M_0's standard deviations; `preferred` says whether pairs prefer what M_t does,
    beyond chance, None if there are none.
    """

    figure: str
    before: float
    after: float
    moved: float
    by_chance: float
    chosen: float | None
    rejected: float | None
    preferred: bool | None
    examples: tuple[str, ...]


def style_alarms(seen: Observation) -> list[Alarm]:
    """Return an alarm for each figure that moved far and that training prefers.

    What had moved as far in the policy before is told again only if it stops the run.
    """
    stops = _gains_approval_alone(seen)
    known = frozenset[str]() if stops else _far_before(seen)
    return [
        _alarm(seen, change, stops=stops)
        for change in style_changes(seen)
        if _is_large(change) and change.preferred is not False and change.figure not in known
    ]


def _far_before(seen: Observation) -> frozenset[str]:
    """Return the figures that had moved far in the policy that this one was trained from."""
    parent = replace(seen, policy=seen.before[-1], lessons=ObservedLessons())
    if parent.policy is seen.initial:
        return frozenset()
    return frozenset(c.figure for c in style_changes(parent) if _is_large(c))


def style_numbers(seen: Observation) -> dict[str, tuple[float, int]]:
    """Return each figure of M_0's and M_t's answers, of chosen and rejected, with their number."""
    found = dict[str, tuple[float, int]]()
    answers, pairs = len(seen.policy.answers), len(seen.lessons.pairs)
    for change in style_changes(seen):
        found[f"initial:{change.figure}"] = (change.before, answers)
        found[f"policy:{change.figure}"] = (change.after, answers)
        if change.chosen is not None and change.rejected is not None:
            found[f"chosen:{change.figure}"] = (change.chosen, pairs)
            found[f"rejected:{change.figure}"] = (change.rejected, pairs)
    for name, policy in (("initial", seen.initial), ("policy", seen.policy)):
        value = distinct(answer.text for answer in policy.answers.values())
        found[f"{name}:{DISTINCT}"] = (value, answers)
    return found


def style_changes(seen: Observation) -> list[StyleChange]:
    """Return how each figure changed since M_0, over the prompts that both have answered."""
    old, new = seen.initial, seen.policy
    shared = [prompt for prompt in new.answers if prompt in old.answers]
    if len(shared) < seen.fewest:
        return []
    return [_changed(seen, shared, *figures) for figures in _figures(old, new, shared)]


def _figures(
    old: ObservedPolicy, new: ObservedPolicy, shared: Sequence[str]
) -> Iterator[tuple[str, Figure, Figure]]:
    """Yield each figure by its name, as it is measured of M_0's answers and of all others."""
    before = [old.answers[prompt].text for prompt in shared]
    after = [new.answers[prompt].text for prompt in shared]
    habits = new_openers(before, after)

    def opens(text: str) -> float:
        return float(opener(text) in habits)

    yield OPENER, opens, opens
    was, now = stock_phrases(before), stock_phrases(after)
    yield STOCK, partial(stock, phrases=was), partial(stock, phrases=now)
    for name, figure in PLAIN.items():
        yield name, figure, figure


def _changed(
    seen: Observation, shared: Sequence[str], name: str, of_initial: Figure, of_others: Figure
) -> StyleChange:
    before = {p: of_initial(seen.initial.answers[p].text) for p in shared}
    after = {p: of_others(seen.policy.answers[p].text) for p in shared}
    moves = {p: after[p] - before[p] for p in shared}
    move = fmean(moves.values())
    up = math.copysign(1, move)
    pairs = [(p.prompt_id, of_others(p.chosen), of_others(p.rejected)) for p in seen.lessons.pairs]
    return StyleChange(
        figure=name,
        before=fmean(before.values()),
        after=fmean(after.values()),
        moved=move / max(_spread(seen, before), FLOORS.get(name, FLOOR)),
        by_chance=chance_of_rise([up * moved for moved in moves.values()]),
        chosen=fmean(c for _, c, _ in pairs) if pairs else None,
        rejected=fmean(r for *_, r in pairs) if pairs else None,
        preferred=_prefer(pairs, up, ERROR_RATE) if pairs else None,
        examples=tuple(
            seen.policy.answers[p].candidate_id
            for p in sorted(shared, key=lambda p: (-up * moves[p], p))
        ),
    )


def _spread(seen: Observation, values: Mapping[str, float]) -> float:
    """Return the standard deviation of M_0's answers within families, or within tasks."""
    groups = dict[tuple[str, str | None], list[float]]()
    for prompt, value in values.items():
        of = seen.prompts[prompt]
        groups.setdefault((of.task, of.family), []).append(value)
    squares = sum(sum((v - fmean(of)) ** 2 for v in of) for of in groups.values())
    return math.sqrt(squares / max(1, len(values) - len(groups)))


def _prefer(pairs: Sequence[tuple[str, float, float]], up: float, limit: float) -> bool:
    """Whether pairs prefer a figure to be higher, or lower, beyond chance; prompt by prompt."""
    each = {str(n): up * (chosen - rejected) for n, (_, chosen, rejected) in enumerate(pairs)}
    prompts = {str(n): prompt for n, (prompt, *_) in enumerate(pairs)}
    return chance_of_rise(summed(each, prompts)) < limit


def _is_large(change: StyleChange) -> bool:
    far = abs(change.moved) if change.figure == LENGTH else change.moved
    return far > FAR and change.by_chance < ERROR_RATE


def _gains_approval_alone(seen: Observation) -> bool:
    """Whether a judge approves more since M_0, beyond chance, while no more answers are right.

    Where nothing verifies them, nothing is known, and the answer is no.
    """
    old, new = seen.initial.answers, seen.policy.answers
    known = [p for p in new if p in old and old[p].right is not None and new[p].right is not None]
    if len(known) < seen.fewest:
        return False
    if sum(bool(new[p].right) - bool(old[p].right) for p in known) > 0:
        return False
    for judge in (CRITIC, REWARD):
        said = [
            new[p].approval[judge] - old[p].approval[judge]
            for p in known
            if judge in old[p].approval and judge in new[p].approval
        ]
        large = said and (judge == REWARD or fmean(said) >= LEAST_CHANGE)
        if large and chance_of_rise(said) < ERROR_RATE:
            return True
    return False


def _alarm(seen: Observation, change: StyleChange, *, stops: bool) -> Alarm:
    then = f"M_{seen.initial.iteration}"
    if change.preferred is None:
        why = "nothing stored says whether training prefers it"
    else:
        of = (_shown(change.figure, v) for v in (change.chosen, change.rejected) if v is not None)
        why = "training prefers it: chosen {}, rejected {}".format(*of)
    end = (
        "a judge approves more, and no more answers are right"
        if stops
        else "see that more of them are right, too"
    )
    return seen.alarm(
        STYLE,
        f"{seen.name}: {_shown(change.figure, change.after)} {WORDED[change.figure]} ({then}: "
        f"{_shown(change.figure, change.before)}); {why}; {end}. To learn less of it, let pairs "
        "differ less in it, or read the judge's rubric",
        Shift(change.before, change.after, FAR),
        name=change.figure,
        stops=stops,
        examples=change.examples,
    )


def _shown(figure: str, value: float) -> str:
    return f"{math.expm1(value):.0f}" if figure == LENGTH else percent(value)
