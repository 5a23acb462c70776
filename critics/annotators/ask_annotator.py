"""Questions to any annotator of a pool: from its templates, or from a whole published prompt.

A published prompt has places for a number of pairs, which are filled in their order. Turns between
`<|im_start|>` and `<|im_end|>` become messages of the conversation; without any, the prompt is one
user message. In the reply each match of one of two patterns is a verdict, in the order of the
pairs. If their number is wrong, no verdict counts, because the pair of each is unknown. This is the
behaviour of the authors' `regex_parser`, as is the padding of prompts that are not full.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ...stores.records import SCORED, Message, Order, Preferred
from ..guard import BARE, GuardKey
from ..judge import ExampleReply, Expected, HeardReply, Question, Reading, absent, user_message
from ..status import Status, UnreadError
from .annotator_pool import AnyAnnotator, PublishedAnnotator, VerdictPatterns
from .comparison import Comparison, ask, require_askable
from .pair_verdicts import TURNED, PairChoice

TURN = re.compile(r"<\|im_start\|>(system|user|assistant)\n(.*?)\n?<\|im_end\|>", re.DOTALL)
PLACE = re.compile(r"\{(instruction|input|output_1|output_2)\}")
END_OF_PROMPT = "<|endofprompt|>"
PADDING = Comparison(prompt="1+1=", first="2", second="3", key="")
"""The pair that fills a prompt up: alpaca_eval's own."""


def ask_annotator(
    annotator: AnyAnnotator, comparisons: Sequence[Comparison], key: GuardKey = BARE
) -> Question[PairChoice]:
    """Return the question to `annotator` about `comparisons`, without a guard if published.

    Raises:
        ValueError: without comparisons, with more than its prompts have room for, with a repeated
            key, or if a published prompt would mix pairs with an input and pairs without.
    """
    if isinstance(annotator, PublishedAnnotator):
        return ask_published(annotator, comparisons)
    return ask(annotator, comparisons, key)


def ask_published(
    annotator: PublishedAnnotator, comparisons: Sequence[Comparison]
) -> Question[PairChoice]:
    """Return the question to `annotator` about `comparisons`, all with an input or all without.

    Raises:
        ValueError: without comparisons, with more than its prompt has room for, with a repeated
            key, or with both kinds.
    """
    require_askable(annotator, comparisons)
    with_input = bool(comparisons[0].input)
    if any(bool(comparison.input) != with_input for comparison in comparisons):
        raise ValueError("a published prompt is for pairs with an input, or for pairs without")
    padded = [*comparisons, *[PADDING] * (annotator.batch_size - len(comparisons))]
    texts = {
        place: iter([_prompt_texts(pair)[place] for pair in padded])
        for place in _prompt_texts(PADDING)
    }
    turns = _turns(annotator.prompt(with_input=with_input))
    return Question(
        messages=tuple(
            Message(role=turn.role, content=PLACE.sub(lambda m: next(texts[m[1]]), turn.content))
            for turn in turns
        ),
        expected=MatchedVerdicts(
            patterns=annotator.verdicts,
            size=annotator.batch_size,
            orders=tuple(comparison.order for comparison in comparisons),
        ),
        judged=tuple(text for pair in comparisons for text in _prompt_texts(pair).values() if text),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedVerdicts(Expected[PairChoice]):
    """The expected reply: `size` verdicts, the first of them on pairs shown in `orders`."""

    patterns: VerdictPatterns
    size: int
    orders: tuple[Order, ...]

    @property
    def nothing(self) -> tuple[PairChoice, ...]:
        """No verdict on any pair."""
        return (PairChoice(),) * len(self.orders)

    def read(self, reply: HeardReply) -> list[Reading[PairChoice]]:
        """Read one verdict for each pair, in their order.

        Raises:
            UnreadError: if the reply has more or fewer than the prompt has pairs.
        """
        said = self._match_choices(reply.text)
        if not said:
            raise UnreadError(absent(reply.text, Status.MISSING))
        if len(said) != self.size:
            raise UnreadError(Status.WRONG_NUMBERS)
        return [
            Reading(SCORED, PairChoice(choice if order == "as_given" else TURNED[choice]))
            for choice, order in zip(said, self.orders, strict=False)
        ]

    def example(self, draw: random.Random, reason: str) -> ExampleReply:
        """Return a verdict on each pair; the form cannot include a reason."""
        del reason
        both = (self.patterns.first, self.patterns.second)
        return ExampleReply("", "\n".join(draw.choice(both).written for _ in range(self.size)))

    def _match_choices(self, text: str) -> list[Preferred]:
        """Return the choice of each match; each search starts after the previous match."""
        said = list[Preferred]()
        while found := self._next(text):
            choice, match = found
            said.append(choice)
            text = text[match.end() :]
        return said

    def _next(self, text: str) -> tuple[Preferred, re.Match[str]] | None:
        """Return the first match of either pattern."""
        first = re.search(self.patterns.first.matches, text)
        second = re.search(self.patterns.second.matches, text)
        if first and (second is None or first.start() <= second.start()):
            return "first", first
        return ("second", second) if second else None


def _prompt_texts(comparison: Comparison) -> dict[str, str]:
    """Return the texts of a comparison by the places of the prompt."""
    shown = (comparison.first, comparison.second)
    first, second = shown if comparison.order == "as_given" else shown[::-1]
    return {
        "instruction": comparison.prompt,
        "input": comparison.input or "",  # A prompt for pairs without one shows its heading, too.
        "output_1": first,
        "output_2": second,
    }


def _turns(prompt: str) -> list[Message]:
    """Return the messages of a prompt."""
    turns = [Message(role=m[1], content=m[2]) for m in TURN.finditer(prompt)]
    return turns or list(user_message(prompt.replace(END_OF_PROMPT, "").strip()))
