"""What an annotator is asked about one pair or several, in one prompt.

Texts are put into templates in one pass, and the tags that the templates use are broken inside
them, so a candidate can not pass for a part of the prompt. Worked examples carry labels of their
own (E1, E2, ...), which no verdict of a real pair has.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from ...stores.records import Message, Order, Preferred
from ..templating import render
from .annotator_pool import Annotator
from .annotator_templates import Example, Form, form_text

NUMBERS: dict[Preferred, str] = {"first": "1", "second": "2", "tie": "tie"}
RANKINGS: dict[Preferred, str] = {"first": "[1, 2]", "second": "[2, 1]", "tie": "1 = 2"}
TIE_OFFERED = " If neither is better, write tie in place of the number."
TIE_RANKED = " If neither is better, write 1 = 2 in place of the list."


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Which of two outputs for a prompt is better? `order` says in which order they are shown.

    `key` names it among those asked together. `input` is what the instruction is about, where that
    is kept apart.
    """

    prompt: str
    first: str
    second: str
    key: str
    order: Order = "as_given"
    input: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a reply must hold: a verdict on each key, the pair `n` being `keys[n - 1]`.

    `orders` says how each pair was shown. `several` is whether verdicts carry numbers.
    """

    form: Form
    several: bool
    ties: bool
    keys: tuple[str, ...]
    orders: tuple[Order, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """What to send to an annotator, and what its reply must hold."""

    messages: tuple[Message, ...]
    expected: Expected


def ask(annotator: Annotator, comparisons: Sequence[Comparison]) -> Question:
    """Return what to ask `annotator` about `comparisons`.

    Raises:
        ValueError: if there are none, more than its prompts hold, or two of one key.
    """
    keys = tuple(comparison.key for comparison in comparisons)
    if not 0 < len(keys) <= annotator.batch_size:
        raise ValueError(
            f"{annotator.name} takes 1 to {annotator.batch_size} pairs, not {len(keys)}"
        )
    if len(set(keys)) < len(keys):
        raise ValueError("two comparisons have the same key")
    with_input = any(comparison.input for comparison in comparisons)
    examples = annotator.examples_input if with_input else annotator.examples
    pairs = [_pair(annotator, c, str(n)) for n, c in enumerate(comparisons, start=1)]
    tie = TIE_RANKED if annotator.form == "ranking" else TIE_OFFERED
    form = form_text(annotator.form, several=annotator.several)
    values = {
        "pairs": "\n\n".join(pairs),
        "examples": _examples(annotator, examples),
        "form": f"{form}{tie if annotator.ties else ''}",
        "persona": f" {annotator.persona}" if annotator.persona else "",
    }
    messages = [Message(role="user", content=render(annotator.templates.frame, values))]
    if annotator.templates.system is not None:
        system = render(annotator.templates.system, values)
        messages.insert(0, Message(role="system", content=system))
    expected = Expected(
        form=annotator.form,
        several=annotator.several,
        ties=annotator.ties,
        keys=keys,
        orders=tuple(comparison.order for comparison in comparisons),
    )
    return Question(tuple(messages), expected)


def reply_of(form: Form, verdicts: Sequence[tuple[str, Preferred, str]], *, several: bool) -> str:
    """Write verdicts (label, which output as shown, explanation) in the form that is asked for."""
    return "\n".join(_statement(form, *verdict, several=several) for verdict in verdicts)


def _statement(
    form: Form, label: str, preferred: Preferred, explanation: str, *, several: bool
) -> str:
    if form == "json":
        number: int | str = int(label) if label.isdigit() else label
        choice = NUMBERS[preferred]
        named = {"pair": number} if several else {}
        said = {
            "explanation": explanation,
            "preferred": int(choice) if choice.isdigit() else choice,
        }
        return json.dumps(named | said, ensure_ascii=False)
    words = RANKINGS if form == "ranking" else NUMBERS
    return f"{label}: {words[preferred]}" if several else words[preferred]


def _pair(annotator: Annotator, comparison: Comparison, number: str) -> str:
    shown = (comparison.first, comparison.second)
    first, second = shown if comparison.order == "as_given" else shown[::-1]
    values = {
        "number": number,
        "instruction": comparison.prompt,
        "first": first,
        "second": second,
    }
    return annotator.templates.shown(
        values | {"input": comparison.input} if comparison.input else values
    )


def _examples(annotator: Annotator, examples: Sequence[Example]) -> str:
    """Show worked examples as pairs will be shown: together, or each by itself; a gap follows."""
    frame = annotator.templates.example
    if frame is None or not examples:
        return ""
    labelled = [(f"E{number}", example) for number, example in enumerate(examples, start=1)]
    groups = [labelled] if annotator.several else [[one] for one in labelled]
    return "".join(f"{_example(annotator, frame, group)}\n\n" for group in groups)


def _example(annotator: Annotator, frame: str, group: Sequence[tuple[str, Example]]) -> str:
    pairs = [
        _pair(
            annotator,
            Comparison(
                prompt=example.instruction,
                input=example.input,
                first=example.first,
                second=example.second,
                key=label,
            ),
            label,
        )
        for label, example in group
    ]
    verdicts: list[tuple[str, Preferred, str]] = [
        (label, example.preferred, example.explanation) for label, example in group
    ]
    reply = reply_of(annotator.form, verdicts, several=annotator.several)
    return render(frame, {"pairs": "\n\n".join(pairs), "reply": reply})
