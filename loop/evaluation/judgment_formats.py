"""The published formats of judgments: each turns one row into pairs and verdicts.

AlpacaFarm and AlpacaEval: `output_1`, `output_2` and `preference`. PandaLM: two responses, three
people's votes and the verdicts of judges (`..._result`). MT-bench: `model_a`, `model_b` and the
`winner`, of people and of GPT-4. LLMBar: pairs with an objective label, and judges' verdicts on
them in both orders.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from ...stores.records import Order
from ..data.conversations import conversation as parsed
from ..data.files import Row, RowError
from ..data.row_fields import INCONSISTENT, TRUSTED, WINNERS, human, published_text, vote_of
from ..data.row_texts import optional_text, shown, text_of
from .judgments import JudgedOutput, Judgment, OutputPair, Topic

Items = Iterator[OutputPair | Judgment | Topic]
PEOPLE = (*TRUSTED, "author_", "expert_")
"""The prefixes of people's names, and of labels, in a lake and in MT-bench."""
BOTH_ORDERS = "_pair"
"""The suffix of MT-bench's judges that judged both orders."""
PAIR = ("first", "second")
LLMBAR_ORDERS: Mapping[str, Order] = {"winner_order1": "as_given", "winner_order2": "swapped"}


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgmentSource:
    """A row's place, the prefixes of people's names, and the field with its task type."""

    path: Path
    number: int
    """The index of the row in its file, from 0."""
    people: tuple[str, ...] = PEOPLE
    by: str | None = None
    """The field that names the task type, if requested."""


Read = Callable[[Row, JudgmentSource], Items]
"""Reads one row of a format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgmentFormat:
    """A format: the fields by which it is recognised, and its reader."""

    fields: frozenset[str]
    read: Read


def alpaca(row: Row, source: JudgmentSource) -> Items:
    """Read AlpacaFarm's and AlpacaEval's rows: 1 or 2 is preferred, null is unread."""
    given = row["preference"]
    preferred = vote_of(given)
    if given is not None and preferred is None:
        raise RowError(
            "'preference' must be between 1 (the first) and 2 (the second), 0 for a tie, or null, "
            f"but is {shown(given)}"
        )
    index = row.get("annotator_index")
    person = None if index is None else human(str(index))
    annotator = optional_text(row, "annotator") or person or source.path.stem
    yield Judgment(
        pair=_texts(row, ("output_1", "output_2"), _generators(row)),
        annotator=annotator,
        human=annotator.startswith(source.people),
        preferred=preferred,
        price=_price(row),
    )


def _price(row: Row) -> float | None:
    """Return the price of a verdict as recorded by AlpacaEval's annotators."""
    given = row.get("price_per_example")
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or not given >= 0:
        told = shown(given)
        raise RowError(f"'price_per_example' must be a number from 0, or null, but is {told}")
    return float(given)


def pandalm(row: Row, _source: JudgmentSource) -> Items:
    """Read PandaLM's rows: the votes of people (0 is a tie), and the verdicts of judges."""
    models = str(row.get("cmp_key") or "").split("_")
    named = (models[0], models[1]) if len(models) == len(PAIR) else (None, None)
    pair = _texts(row, ("response1", "response2"), named)
    for name in row:
        if name.startswith("annotator"):
            given = row[name]
            preferred = vote_of(given)
            if preferred is None:
                raise RowError(f"{name!r} must be 0, 1 or 2, but is {shown(given)}")
            yield Judgment(pair=pair, annotator=human(name), human=True, preferred=preferred)
        elif name.endswith("_result"):
            given = row[name]
            said = "0" if str(given).lower() == "tie" else given
            judge = name.removesuffix("_result")
            yield Judgment(pair=pair, annotator=judge, human=False, preferred=vote_of(said))


def mt_bench(row: Row, source: JudgmentSource) -> Items:
    """Read MT-bench's rows; in a "tie (inconsistent)" the two orders disagreed."""
    winner = row["winner"]
    if not isinstance(winner, str) or winner not in WINNERS:
        known = ", ".join(WINNERS)
        raise RowError(f"'winner' must be one of {known}, but is {shown(winner)}")
    judge = text_of(row["judge"], "judge")
    turn = row.get("turn", 1)
    models = [text_of(row[name], name) for name in ("model_a", "model_b")]
    answers = [_answer(row.get(f"conversation_{side}"), turn) for side in "ab"]
    first, second = (
        JudgedOutput(key=f"{model}, turn {turn}", text=text, model=model)
        for model, text in zip(models, answers, strict=True)
    )
    yield Judgment(
        pair=OutputPair(instruction=_question(row), first=first, second=second),
        annotator=judge,
        human=judge.startswith(source.people),
        preferred=WINNERS[winner],
        orders_agreed=winner != INCONSISTENT if judge.endswith(BOTH_ORDERS) else None,
    )


def mt_bench_questions(row: Row, source: JudgmentSource) -> Items:
    """Read MT-bench's questions, for their categories."""
    if source.by is not None and source.by in row:
        yield Topic(instruction=_question(row), task=text_of(row[source.by], source.by))


def _question(row: Row) -> str:
    return f"question {row['question_id']}"


def _answer(conversation: object, turn: object) -> str | None:
    """Return the assistant's answer in a turn, if the row has the conversation."""
    if not isinstance(conversation, list) or not isinstance(turn, int):
        return None
    messages = parsed(cast("list[object]", conversation), "conversation")
    said = [message.content for message in messages if message.role == "assistant"]
    return said[turn - 1] if 0 < turn <= len(said) else None


def llmbar_verdicts(row: Row, _source: JudgmentSource) -> Items:
    """Read judges' verdicts on LLMBar's pairs, with the outputs in both orders."""
    first, second = JudgedOutput(key="1"), JudgedOutput(key="2")
    pair = OutputPair(instruction=f"{row['subset']}/{row['idx']}", first=first, second=second)
    label = vote_of(row["label"])
    if label is None:
        raise RowError(f"'label' must be 1 or 2, but is {shown(row['label'])}")
    judge = f"{row['llm']} {row['strategy']}"
    yield Judgment(pair=pair, annotator=human("label"), human=True, preferred=label)
    for name, order in LLMBAR_ORDERS.items():
        preferred = vote_of(row[name])
        yield Judgment(pair=pair, annotator=judge, human=False, preferred=preferred, shown=order)


def llmbar_pairs(row: Row, source: JudgmentSource) -> Items:
    """Read the texts of LLMBar's pairs; the file's name is the subset's."""
    stem = source.path.parent if source.path.stem == "dataset" else source.path.with_suffix("")
    _, _, subset = stem.as_posix().replace("__", "/").rpartition("LLMBar/")
    texts = (_output(row, name).text for name in ("output_1", "output_2"))
    first, second = (JudgedOutput(key=str(n), text=text) for n, text in enumerate(texts, start=1))
    yield OutputPair(instruction=f"LLMBar/{subset}/{source.number}", first=first, second=second)


def _texts(row: Row, names: tuple[str, str], models: tuple[str | None, str | None]) -> OutputPair:
    """Return a pair that its texts identify; Alpaca's `input` belongs to the instruction."""
    parts = [row.get("instruction"), row.get("input")]
    instruction = "\n\n".join(part for part in parts if isinstance(part, str) and part)
    first, second = (_output(row, name, model) for name, model in zip(names, models, strict=True))
    return OutputPair(instruction=instruction, first=first, second=second)


def _generators(row: Row) -> tuple[str | None, str | None]:
    return optional_text(row, "generator_1"), optional_text(row, "generator_2")


def _output(row: Row, name: str, model: str | None = None) -> JudgedOutput:
    text = published_text(row[name], name)
    return JudgedOutput(key=text, text=text, model=model)


FORMATS: Mapping[str, JudgmentFormat] = {
    "AlpacaEval": JudgmentFormat(
        fields=frozenset({"output_1", "output_2", "preference"}), read=alpaca
    ),
    "PandaLM": JudgmentFormat(fields=frozenset({"response1", "response2"}), read=pandalm),
    "MT-bench": JudgmentFormat(
        fields=frozenset({"question_id", "model_a", "model_b", "winner", "judge"}), read=mt_bench
    ),
    "MT-bench's questions": JudgmentFormat(
        fields=frozenset({"question_id", "category", "turns"}), read=mt_bench_questions
    ),
    "LLMBar's verdicts": JudgmentFormat(
        fields=frozenset(
            {"subset", "idx", "llm", "strategy", "label", "winner_order1", "winner_order2"}
        ),
        read=llmbar_verdicts,
    ),
    "LLMBar's pairs": JudgmentFormat(
        fields=frozenset({"input", "output_1", "output_2", "label"}), read=llmbar_pairs
    ),
}


def format_of(row: Row) -> JudgmentFormat:
    """Return the format of a file by the fields of a row.

    Raises:
        RowError: if they match none.
    """
    for known in FORMATS.values():
        if known.fields <= set(row):
            return known
    expected = "; ".join(f"{n}: {', '.join(sorted(f.fields))}" for n, f in FORMATS.items())
    raise RowError(f"its fields match no format of judgments ({expected})")


def read_row(form: JudgmentFormat, row: Row, source: JudgmentSource) -> Items:
    """Yield the pairs and verdicts of a row.

    Raises:
        RowError: if it cannot be read.
    """
    missing = sorted(form.fields - set(row))
    if missing:
        raise RowError(f"lacks the field {missing[0]!r}, unlike the first row")
    told = row.get(source.by) if source.by is not None else None
    for item in form.read(row, source):
        yield item if told is None else _filed(item, str(told))


def _filed(item: OutputPair | Judgment | Topic, task: str) -> OutputPair | Judgment | Topic:
    """Return a pair, or a verdict on it, with the task type of its row."""
    if isinstance(item, OutputPair):
        return replace(item, task=task)
    if isinstance(item, Judgment):
        return replace(item, pair=replace(item.pair, task=task))
    return item
