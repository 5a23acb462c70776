"""What an annotator is asked about one pair or several, in one prompt.

Texts are put into templates in one pass, and the tags that the templates use are broken inside
them, so a candidate cannot pass for a part of the prompt. Worked examples carry labels of their
own (E1, E2, ...), which no verdict of a real pair has.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...stores.records import Message, Order
from ..guard import BARE, Guard, GuardKey, without_mark
from ..judge import Expected, Question, lines_of, reply_object, schema_under, user_message
from ..templating import defused, render, tags
from .annotator_pool import (
    Annotator,
    AskedProfile,
    WorkedExample,
    form_text,
    persona_text,
    tie_text,
)
from .pair_verdicts import PairChoice, PairVerdicts
from .stated_verdicts import StatedVerdict
from .written_verdicts import WORDS, reply_of

UNGUARDED = Guard()
"""The guard of worked examples: they come with the package."""


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


def ask(
    annotator: Annotator, comparisons: Sequence[Comparison], key: GuardKey = BARE
) -> Question[PairChoice]:
    """Return what to ask `annotator` about `comparisons`.

    One whose replies are a few tokens cannot write the mark of a guard: its texts stand between
    the tags all the same.

    Raises:
        ValueError: if there are none, more than its prompts hold, or two of one key.
    """
    require_askable(annotator, comparisons)
    with_input = any(comparison.input for comparison in comparisons)
    examples = annotator.worked(with_input=with_input)
    judged = tuple(text for comparison in comparisons for text in _texts(comparison).values())
    guard = key.over(judged, annotator.templates.values())
    pairs = [_pair(annotator, c, str(n), guard) for n, c in enumerate(comparisons, start=1)]
    language = annotator.language
    form = form_text(annotator.form, several=annotator.several, language=language)
    tie = tie_text(annotator.form, language) if annotator.ties else ""
    expected = _expected(annotator, tuple(comparison.order for comparison in comparisons))
    persona = f" {persona_text(annotator.persona, language)}" if annotator.persona else ""
    values = {
        "pairs": "\n\n".join(pairs),
        "examples": _examples(annotator, examples, _framing(annotator, expected, guard)),
        "form": f"{form}{tie}",
        "persona": persona,
    }
    messages = user_message(render(annotator.templates["frame"], values))
    if "system" in annotator.templates:
        system = render(annotator.templates["system"], values)
        messages = (Message(role="system", content=system), *messages)
    # What counts of an object is without its mark.
    texts = [without_mark(m.content) if guard.by_schema else m.content for m in messages]
    shown = frozenset[str]().union(*map(lines_of, texts))
    own_lines = shown - {*WORDS.get(annotator.form, {}).values()}  # Worked examples show these.
    question = Question(messages=messages, expected=expected, own_lines=own_lines, judged=judged)
    return question.guarded(guard, short=annotator.short)


def _framing(
    annotator: Annotator, expected: Expected[PairChoice], guard: Guard
) -> Callable[[str], str]:
    """Return what makes the reply to a worked example one that would be read here."""
    ahead = "" if annotator.short else guard.ahead
    if schema_under(guard, expected, short=annotator.short) is None:
        return lambda reply: f"{ahead}{reply}"
    return lambda reply: reply_object(expected, reply, guard.mark)


def require_askable(annotator: AskedProfile, comparisons: Sequence[Comparison]) -> None:
    """Refuse what does not go into one prompt.

    Raises:
        ValueError: if there are no comparisons, more than it holds, or two of one key.
    """
    count = len(comparisons)
    if not 0 < count <= annotator.batch_size:
        raise ValueError(f"{annotator.name} takes 1 to {annotator.batch_size} pairs, not {count}")
    if len({comparison.key for comparison in comparisons}) < count:
        raise ValueError("two comparisons have the same key")


def _expected(annotator: Annotator, orders: tuple[Order, ...]) -> Expected[PairChoice]:
    """Return how the annotator's reply is read."""
    several, ties = annotator.several, annotator.ties
    match annotator.form:
        case "token" | "json" | "ranking" as form:
            return PairVerdicts(form=form, several=several, ties=ties, orders=orders)
        case form:
            return StatedVerdict(form=form, ties=ties, order=orders[0])


def _texts(comparison: Comparison) -> dict[str, str]:
    """Return the texts of a comparison by their placeholders, in the order in which it is shown."""
    shown = (comparison.first, comparison.second)
    first, second = shown if comparison.order == "as_given" else shown[::-1]
    values = {"instruction": comparison.prompt, "first": first, "second": second}
    return values | ({"input": comparison.input} if comparison.input else {})


def _pair(
    annotator: Annotator, comparison: Comparison, number: str, guard: Guard = UNGUARDED
) -> str:
    """Return one pair as the prompt shows it."""
    names = tags(*annotator.templates.values())
    texts = _texts(comparison).items()
    safe = {name: guard.shown(defused(value, names)) for name, value in texts}
    template = annotator.templates["pair_input" if comparison.input else "pair"]
    return render(template, {"number": number, **safe})


def _examples(
    annotator: Annotator, examples: Sequence[WorkedExample], framed: Callable[[str], str]
) -> str:
    """Show worked examples as pairs will be shown: together, or each by itself; a gap follows.

    `framed` gives their replies the form that the annotator's is to have.
    """
    frame = annotator.templates.get("example")
    if frame is None or not examples:
        return ""
    labelled = [(f"E{number}", example) for number, example in enumerate(examples, start=1)]
    groups = [labelled] if annotator.several else [[one] for one in labelled]
    return "".join(f"{_example(annotator, frame, group, framed)}\n\n" for group in groups)


def _example(
    annotator: Annotator,
    frame: str,
    group: Sequence[tuple[str, WorkedExample]],
    framed: Callable[[str], str],
) -> str:
    pairs = [
        _pair(
            annotator,
            Comparison(
                prompt=e.instruction, input=e.input, first=e.first, second=e.second, key=label
            ),
            label,
        )
        for label, e in group
    ]
    reply = reply_of(
        annotator.form,
        [(label, e.preferred, e.explanation) for label, e in group],
        several=annotator.several,
    )
    return render(frame, {"pairs": "\n\n".join(pairs), "reply": framed(reply)})
