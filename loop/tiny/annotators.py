"""The annotators of the tiny world: scripts that replace three models of different quality.

Each approximates the human: it sees fewer of the faults, weighs style more, likes length without
limit, and errs at random. A script reads the prompt rendered from a pool's templates and answers in
the requested form, so everything around it works as with real models.
"""

import math
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

from ...configs.annotation import Role
from ...critics.annotators.annotator_pool import form_text, load_pool, persona_text
from ...critics.annotators.pair_verdicts import FORMS, ReplyForm, reply_of
from ...critics.guard import PLACEHOLDER
from ...policies.engines.engine import Request, Sampling
from ...stores.records import Preferred
from .human import (
    KIND,
    LISTED,
    WHOLE,
    correctness,
    exercise_of,
    is_list,
    lengthening,
)
from .nouns import FRIENDLY

POOL = "tiny"
LONGEST = 3.0
"""Length beyond this multiple of the words needed is ignored."""
PERSUADED = 1.0
"""The weight that a persona adds to the preference for length."""
UNASKED = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Taste:
    """An annotator's taste: weights of the features that it sees, and the scale of its errors.

    `correct` compares with the human's 3. `style` multiplies the human's weights of friendliness,
    completeness and lists. `longer` weighs additional length. `shown_first` is a bonus for the
    first place. `noise` is the scale of a logistic error at temperature 1.
    """

    correct: float
    style: float
    longer: float
    shown_first: float
    noise: float


@dataclass(frozen=True, slots=True)
class ShownPair:
    """One pair as a prompt shows it, under its label."""

    label: str
    instruction: str
    first: str
    second: str


TASTES: dict[Role, Taste] = {
    "strong": Taste(correct=2.0, style=1.0, longer=0.6, shown_first=0.0, noise=0.4),
    "medium": Taste(correct=1.2, style=1.5, longer=0.9, shown_first=0.1, noise=0.6),
    "weak": Taste(correct=0.6, style=2.0, longer=1.2, shown_first=0.2, noise=0.8),
}


def strong(request: Request, sampling: Sampling) -> str:
    """Judge as the best of the three."""
    return judge_pairs(TASTES["strong"], "strong", request, sampling)


def medium(request: Request, sampling: Sampling) -> str:
    """Judge by correctness and by style alike."""
    return judge_pairs(TASTES["medium"], "medium", request, sampling)


def weak(request: Request, sampling: Sampling) -> str:
    """Judge mostly by style."""
    return judge_pairs(TASTES["weak"], "weak", request, sampling)


def judge_pairs(taste: Taste, role: Role, request: Request, sampling: Sampling) -> str:
    """Answer a prompt that shows pairs, with a verdict on each in the requested form."""
    prompt = "\n".join(message.content for message in request.messages)
    form, several = form_of(prompt)
    rng = random.Random(f"tiny annotator {role} {request.seed}")
    verdicts = [
        (pair.label, *_verdict(taste, pair, prompt, rng, sampling.temperature))
        for pair in pairs_in(prompt, role)
    ]
    return reply_of(form, verdicts, several=several)


def form_of(prompt: str) -> tuple[ReplyForm, bool]:
    """Return the form of reply that a prompt asks for, and whether it is about several pairs."""
    for form, several in product(FORMS, (True, False)):
        if form_text(form, several=several) in prompt:
            return form, several
    raise ValueError("the prompt asks for an unknown form of reply")


def pairs_in(prompt: str, role: Role) -> list[ShownPair]:
    """Return the pairs that a prompt shows, without its worked examples."""
    for pattern in _patterns(role):
        if found := [_shown_pair(match) for match in pattern.finditer(prompt)]:
            return found
    return []


@cache
def _patterns(role: Role) -> tuple[re.Pattern[str], ...]:
    """Return patterns that find pairs in the prompts of the pool's annotators of this role."""
    annotators = (a for a in load_pool(POOL).annotators if a.model == role)
    templates = dict.fromkeys(a.templates["pair"] for a in annotators)
    return tuple(re.compile("".join(_pieces(template)), re.DOTALL) for template in templates)


def _pieces(template: str) -> Iterator[str]:
    """Turn the template of a pair into a pattern: placeholders match a number or text."""
    end, named = 0, set[str]()
    for match in PLACEHOLDER.finditer(template):
        name = match.group(1)
        yield re.escape(template[end : match.start()])
        any_text = r"\d+" if name == "number" else ".*?"
        yield f"(?P={name})" if name in named else f"(?P<{name}>{any_text})"
        named.add(name)
        end = match.end()
    yield re.escape(template[end:])


def _shown_pair(match: re.Match[str]) -> ShownPair:
    return ShownPair(
        match.groupdict().get("number", UNASKED),
        match["instruction"],
        match["first"],
        match["second"],
    )


def _verdict(
    taste: Taste, pair: ShownPair, prompt: str, rng: random.Random, temperature: float
) -> tuple[Preferred, str]:
    """Return which output is better, as shown, and why."""
    chance = rng.random()
    margin = (
        appeal(taste, pair.instruction, pair.first, prompt)
        - appeal(taste, pair.instruction, pair.second, prompt)
        + taste.shown_first
    )
    scale = taste.noise * temperature
    likely = 1 / (1 + math.exp(-margin / scale)) if scale else float(margin > 0)
    return ("first", "It is the better one.") if chance < likely else ("second", "It is better.")


def appeal(taste: Taste, instruction: str, answer: str, prompt: str = "") -> float:
    """Return how good an answer seems to an annotator, with the prompt's persona if any."""
    exercise = exercise_of(instruction)
    sway = PERSUADED * ((persona_text("long") in prompt) - (persona_text("short") in prompt))
    style = (
        KIND * answer.lstrip().startswith(FRIENDLY)
        + WHOLE * answer.rstrip().endswith((".", "}"))
        + LISTED * is_list(answer)
    )
    return (
        taste.correct * correctness(exercise, answer)
        + taste.style * style
        + (taste.longer + sway) * min(lengthening(exercise, answer), LONGEST)
    )
