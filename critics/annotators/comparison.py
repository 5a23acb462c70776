"""Comparing pairs of outputs: the draws that need no model, and the question to an annotator.

AlpacaFarm (Section 3, Appendix C.1) draws the annotator of a pair uniformly from the pool, shows
the two outputs in a random order, and flips a share p_flip of the labels. Flipping is a mixture:
with probability 2 p_flip a fair coin replaces the annotator, which flips p_flip of all labels. The
coin is tossed first, so an annotator that it would overrule costs no request.

Every draw depends only on the seed and a key. Keyed on the pair, the draws of a prompt's pairs are
independent; keyed on the instruction, as in AlpacaFarm's code, they are equal. Evaluations are
always keyed on the instruction: all policies meet the same annotator and order there, so their
effect cancels in the difference.

Texts are put into templates in one pass, and the tags that the templates use are broken inside
them, so a candidate cannot pass for a part of the prompt. Worked examples have separate labels (E1,
E2, ...), which a verdict on a real pair never uses.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from ...stores.keys import SEED_BITS, derive_seed
from ...stores.records import SCORED, Message, Order, Preferred
from ..guard import BARE, Guard, GuardKey, render
from ..judge import Question, Reading, lines_of, schema_under, user_message
from ..reply_schema import COMMENTS
from .annotator_pool import Annotator, AnnotatorPool, WorkedExample, persona_text
from .pair_verdicts import NUMBERS, VERDICTS, WORDS, PairChoice, PairVerdicts, reply_of


def assign(pool: AnnotatorPool, key: str, seed: int) -> Annotator:
    """Return the annotator of `key`; each of the pool is as likely as any other."""
    return pool.annotators[int(_uniform(seed, "annotator", key) * len(pool.annotators))]


def shown_swapped(key: str, seed: int) -> bool:
    """Whether the second output is shown first; one half of the keys."""
    return _uniform(seed, "order", key) < 1 / 2


def coin(key: str, seed: int, p_flip: float) -> Preferred | None:
    """Return the noise's verdict on `key`, or None if the annotator decides.

    `p_flip` is at most 1/2: then the coin decides everything.
    """
    if _uniform(seed, "noise", key) >= 2 * p_flip:
        return None
    return "first" if _uniform(seed, "coin", key) < 1 / 2 else "second"


def reconcile(as_given: Reading[PairChoice], swapped: Reading[PairChoice]) -> Reading[PairChoice]:
    """Return one verdict from the readings of both orders.

    If the preference depends on the order, the verdict is a tie. If one of the two is unread, the
    pair is unread for the same reason.
    """
    for reading in (as_given, swapped):
        if reading.status != SCORED:
            return reading
    one, other = as_given.value, swapped.value
    agreed = one.preferred if one.preferred == other.preferred else "tie"
    explanation = "\n\n".join(filter(None, (one.explanation, other.explanation)))
    return Reading(SCORED, PairChoice(agreed, explanation))


def _uniform(seed: int, what: str, key: str) -> float:
    """Return a number in [0, 1)."""
    return derive_seed(seed, "annotation", what, key) / 2**SEED_BITS


CHARACTERS = 2
"""Characters of an explanation for each token that an annotator may write."""
LabelledExamples = Sequence[tuple[str, WorkedExample]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Which of two outputs for a prompt is better? `order` is the order in which they are shown.

    `key` identifies it among the comparisons of a question. `input` is the instruction's input, if
    prompts keep it apart.
    """

    prompt: str
    first: str
    second: str
    key: str
    order: Order = "as_given"
    input: str | None = None

    @property
    def shown(self) -> tuple[str, str]:
        """The outputs in the order in which they are shown."""
        return (self.first, self.second) if self.order == "as_given" else (self.second, self.first)

    @property
    def texts(self) -> dict[str, str]:
        """The texts by their placeholders in a template."""
        first, second = self.shown
        given = {"input": self.input} if self.input else {}
        return {"instruction": self.prompt, "first": first, "second": second, **given}


def ask(
    annotator: Annotator, comparisons: Sequence[Comparison], key: GuardKey = BARE
) -> Question[PairChoice]:
    """Return the question to `annotator` about `comparisons`.

    An annotator whose replies are a few tokens cannot write a guard's mark; its question still puts
    the texts between the guard's tags.
    """
    with_input = any(comparison.input for comparison in comparisons)
    examples = annotator.worked_examples(with_input=with_input)
    judged = tuple(text for comparison in comparisons for text in comparison.texts.values())
    guard = key.over(judged, annotator.templates.values())
    pairs = [_pair(annotator, c, str(n), guard) for n, c in enumerate(comparisons, start=1)]
    expected = _expected_reply(annotator, tuple(comparison.order for comparison in comparisons))
    schema = None if annotator.short else schema_under(guard, expected)
    persona = f" {persona_text(annotator.persona)}" if annotator.persona else ""
    values = {
        "pairs": "\n\n".join(pairs),
        "examples": _examples(annotator, examples, guard, in_object=schema is not None),
        "form": annotator.form_text if schema is None else "",
        "persona": persona,
    }
    messages = user_message(render(annotator.templates["frame"], values))
    if "system" in annotator.templates:
        system = render(annotator.templates["system"], values)
        messages = (Message(role="system", content=system), *messages)
    shown = frozenset[str]().union(*(lines_of(message.content) for message in messages))
    own_lines = shown - {*WORDS.get(annotator.form, {}).values()}  # Worked examples show these.
    question = Question(messages=messages, expected=expected, own_lines=own_lines, judged=judged)
    return question.with_guard(guard, short=annotator.short)


def _expected_reply(annotator: Annotator, orders: tuple[Order, ...]) -> PairVerdicts:
    """Return how the annotator's reply is read."""
    reasons = annotator.form not in WORDS
    # A token is a word or less: two characters for each leave room for the verdict.
    room = min(COMMENTS, CHARACTERS * annotator.max_tokens // len(orders)) if reasons else 0
    return PairVerdicts(
        form=annotator.form,
        several=annotator.several,
        ties=annotator.ties,
        orders=orders,
        explained=room,
    )


def _pair(annotator: Annotator, comparison: Comparison, number: str, guard: Guard) -> str:
    """Return one pair as the prompt shows it."""
    safe = {name: guard.fence(text) for name, text in comparison.texts.items()}
    template = annotator.templates["pair_input" if comparison.input else "pair"]
    return render(template, {"number": number, **safe})


def _examples(
    annotator: Annotator, examples: Sequence[WorkedExample], guard: Guard, *, in_object: bool
) -> str:
    """Show worked examples in the same form as pairs: all in one, or one each; a gap follows."""
    frame = annotator.templates.get("example")
    if frame is None:
        return ""
    labelled = [(f"E{number}", example) for number, example in enumerate(examples, start=1)]
    groups = [labelled] if annotator.several and labelled else [[one] for one in labelled]
    # Worked examples come with the package, so their texts are not guarded.
    bare = BARE.over((), guard.templates)
    shown = ""
    for group in groups:
        pairs = (_pair(annotator, _compared(e, label), label, bare) for label, e in group)
        reply = _example_reply(annotator, group, guard, in_object=in_object)
        shown += render(frame, {"pairs": "\n\n".join(pairs), "reply": reply}) + "\n\n"
    return shown


def _compared(example: WorkedExample, label: str) -> Comparison:
    fields = example.model_dump(include={"input", "first", "second"})
    return Comparison(prompt=example.instruction, key=label, **fields)


def _example_reply(
    annotator: Annotator, group: LabelledExamples, guard: Guard, *, in_object: bool
) -> str:
    """Return the reply to worked examples: an object, or the annotator's form below the mark.

    An object without the mark can never count.
    """
    if not in_object:
        verdicts: list[tuple[str, Preferred, str]] = [
            (label, e.preferred, e.explanation) for label, e in group
        ]
        text = reply_of(annotator.form, verdicts, several=annotator.several)
        return text if annotator.short else f"{guard.ahead}{text}"
    objects: list[dict[str, int | str]] = [
        {"explanation": e.explanation, "preferred": int(NUMBERS[e.preferred])} for _, e in group
    ]
    if annotator.form in WORDS:
        objects = [{"preferred": one["preferred"]} for one in objects]
    return json.dumps({VERDICTS: objects} if annotator.several else objects[0], ensure_ascii=False)
