"""How M_t's answers differ in length and repetition from M_0's, and whether training prefers that.

An alarm says that a figure moved far and that the pairs prefer it: the policy learns how to say
something rather than what to say. It stops a run only if a judge also approves more and no more
answers are right.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from ...stores.records import Alarm
from .observe import (
    ERROR_RATE,
    Observation,
    ObservedLessons,
    Shift,
    chance_of_rise,
    percent,
)

STYLE = "style"
LENGTH, REPETITION = "length", "repetition"
FLOORS: Mapping[str, float] = {LENGTH: 0.2, REPETITION: 0.1}
"""The smallest spread of a figure: if M_0's answers are all alike, a few others raise no alarm."""
FAR = 1.0
"""Standard deviations among M_0's answers of one family by which a figure may move."""
WORDED: Mapping[str, str] = {
    LENGTH: "characters are in a typical answer",
    REPETITION: "of what it says it has said in the same answer",
}
WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|\w+|[^\w\s]")
"""A word or a mark; of scripts without spaces, a character."""
GRAM = 3


def length(text: str) -> float:
    """Return the logarithm of a text's length in characters."""
    return math.log(1 + len(text))


def repetition(text: str) -> float:
    """Return the share of a text's sequences of three words that it has said before."""
    words = WORD.findall(text.lower())
    found = [tuple(words[i : i + GRAM]) for i in range(len(words) - GRAM + 1)]
    return 1 - len(set(found)) / len(found) if found else 0.0


FIGURES: Mapping[str, Callable[[str], float]] = {LENGTH: length, REPETITION: repetition}


@dataclass(frozen=True, slots=True, kw_only=True)
class StyleChange:
    """A figure of M_0's and of M_t's answers, and of the chosen and the rejected.

    `moved` counts M_0's standard deviations; `preferred` is whether pairs prefer the direction in
    which M_t moved, beyond chance, None without pairs.
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


def style_alarms(seen: Observation, *, stops: bool) -> list[Alarm]:
    """Return an alarm for each figure that moved far and that training prefers.

    It `stops` the run if a judge approves more and no more answers are right. A figure that had
    moved as far in the policy before is repeated only if it stops the run.
    """
    known = frozenset[str]() if stops else _far_before(seen)
    return [
        _alarm(seen, change, stops=stops)
        for change in style_changes(seen)
        if _is_large(change) and change.preferred is not False and change.figure not in known
    ]


def _far_before(seen: Observation) -> frozenset[str]:
    """Return the figures that had moved far in the policy that this one was trained from."""
    if seen.parent is None:
        return frozenset()
    parent = replace(seen, policy=seen.parent, lessons=ObservedLessons())
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
    return found


def style_changes(seen: Observation) -> list[StyleChange]:
    """Return how each figure changed since M_0, over the prompts that both have answered."""
    shared = [prompt for prompt in seen.policy.answers if prompt in seen.initial.answers]
    if len(shared) < seen.fewest:
        return []
    return [_style_change(seen, shared, name, figure) for name, figure in FIGURES.items()]


def _style_change(
    seen: Observation, shared: Sequence[str], name: str, figure: Callable[[str], float]
) -> StyleChange:
    before = {p: figure(seen.initial.answers[p].text) for p in shared}
    after = {p: figure(seen.policy.answers[p].text) for p in shared}
    moves = {p: after[p] - before[p] for p in shared}
    move = fmean(moves.values())
    up = math.copysign(1, move)
    pairs = [(p.prompt_id, figure(p.chosen), figure(p.rejected)) for p in seen.lessons.pairs]
    preferred = _by_chance((c - r for _, c, r in pairs), up, [prompt for prompt, *_ in pairs])
    return StyleChange(
        figure=name,
        before=fmean(before.values()),
        after=fmean(after.values()),
        moved=move / max(_spread(seen, before), FLOORS[name]),
        by_chance=_by_chance(moves.values(), up, shared),
        chosen=fmean(c for _, c, _ in pairs) if pairs else None,
        rejected=fmean(r for *_, r in pairs) if pairs else None,
        preferred=preferred < ERROR_RATE if pairs else None,
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


def _by_chance(moves: Iterable[float], up: float, clusters: Sequence[str]) -> float:
    """Return how likely so large a move is, up or down, if nothing moves it."""
    moved = [up * move for move in moves]
    return chance_of_rise([0.0] * len(moved), moved, clusters)


def _is_large(change: StyleChange) -> bool:
    far = abs(change.moved) if change.figure == LENGTH else change.moved
    return far > FAR and change.by_chance < ERROR_RATE


def _alarm(seen: Observation, change: StyleChange, *, stops: bool) -> Alarm:
    then = f"M_{seen.initial.iteration}"
    if change.preferred is None:
        why = "no stored pair shows whether training prefers it"
    else:
        of = (_format(change.figure, v) for v in (change.chosen, change.rejected) if v is not None)
        why = "training prefers it: chosen {}, rejected {}".format(*of)
    end = "; a judge approves more, and no more answers are right" if stops else ""
    return seen.alarm(
        STYLE,
        f"{seen.name}: {_format(change.figure, change.after)} {WORDED[change.figure]} ({then}: "
        f"{_format(change.figure, change.before)}); {why}{end}",
        Shift(change.before, change.after, FAR),
        name=change.figure,
        stops=stops,
        examples=change.examples,
    )


def _format(figure: str, value: float) -> str:
    return f"{math.expm1(value):.0f}" if figure == LENGTH else percent(value)
