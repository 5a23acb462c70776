"""The human of the tiny world as an annotator: what people's own comparisons would be.

A person answers as the scripted annotators do, but by the hidden score itself. People differ, too:
of the paper's, one agrees with the majority of three others on 66 % of pairs (AlpacaFarm, Section
4.3). `DOUBT` is the scale at which the tiny world's do so on answers of the fine-tuned model. No
personas move them.
"""

import math
import random

from ...critics.annotators.written_verdicts import reply_of
from ...policies.engines.engine import Request, Sampling
from ...stores.records import Preferred
from .annotators import TASTES, ShownPair, form_of, pairs_in
from .human import score

DOUBT = 1.2
"""The scale of a person's error, in points of the hidden score."""
FARTHEST = 30.0
"""What is farther apart than this is as good as certain."""


def person(request: Request, _sampling: Sampling) -> str:
    """Answer a prompt that shows pairs as a person would, in the requested form."""
    prompt = "\n".join(message.content for message in request.messages)
    form, several = form_of(prompt)
    rng = random.Random(f"tiny person {request.seed}")
    verdicts = [(pair.label, *_verdict(pair, rng)) for pair in _shown(prompt)]
    return reply_of(form, verdicts, several=several)


def liked_more(score_of_one: float, score_of_other: float) -> float:
    """Return the probability that a person prefers the one of two answers with these scores."""
    apart = (score_of_one - score_of_other) / DOUBT
    return 1 / (1 + math.exp(-min(max(apart, -FARTHEST), FARTHEST)))


def _shown(prompt: str) -> list[ShownPair]:
    every = (pairs_in(prompt, role) for role in TASTES)
    return next(filter(None, every), list[ShownPair]())


def _verdict(pair: ShownPair, rng: random.Random) -> tuple[Preferred, str]:
    likely = liked_more(score(pair.instruction, pair.first), score(pair.instruction, pair.second))
    return ("first" if rng.random() < likely else "second"), "People like it more."
