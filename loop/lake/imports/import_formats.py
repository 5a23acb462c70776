"""The published formats that can be imported: each turns one row of a file into rows of the lake.

UltraFeedback: openbmb/UltraFeedback's `completions` with four annotated aspects, and the binarised
form (`chosen`, `rejected`) that TRL takes, too. AlpacaFarm and AlpacaEval: `output_1`, `output_2`
and `preference`, or model outputs. PandaLM: three annotators' votes. Just-Eval: scored aspects.
IFEval: verifiable instructions, which become checks, with responses and verdicts.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from ....stores.records import Candidate, Message, Prompt, storable
from ....stores.schemas import Row as StoredRow
from ...data.files import Row, RowError
from ...data.ifeval_fields import INSTRUCTIONS
from ...data.prompt_rows import TEXT_FIELDS, conversation, optional_text
from ...data.rating_scale import THREE_LEVEL, number
from ...data.row_fields import (
    ANSWER_FIELDS,
    PLAIN_VOTES,
    answer_of,
    critic_of,
    fields_of,
    human,
    list_of,
    model_of,
    object_of,
    only,
    remark_of,
    text_or_empty,
    vote_of,
)
from .ifeval_rows import ifeval
from .imported_rows import ImportedVerdict, Maker
from .pair_forms import pairs
from .ultrafeedback_rows import ultrafeedback

ENTRY_FIELDS = ("candidates", "completions", "responses")

Rows = Iterator[StoredRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportFormat:
    """A format: how it is recognised, the scale of its ratings, and its reader.

    `semantics` is raised when the same row would give other rows of the lake.
    """

    detect: Callable[[Row], bool]
    read: Callable[[Row, Maker], Rows]
    scale: str = THREE_LEVEL
    semantics: int = 1


def prompts(row: Row, make: Maker) -> Rows:
    """Read a prompt without answers."""
    yield make.prompt(row)


def candidates(row: Row, make: Maker) -> Rows:
    """Read a prompt with one or more answers, which may have ratings and a score."""
    prompt, answer = prompt_and_answer(row, make)
    yield prompt
    if answer is not None:
        yield from _answered(prompt, answer, row, make)
    for name in ENTRY_FIELDS:
        for place, entry in enumerate(list_of(row, name), start=1):
            item = object_of(entry, f"{name}[{place}]")
            text = answer_of(item)
            if text is None:
                raise RowError(f"{name}[{place}] has no {' or '.join(ANSWER_FIELDS)}")
            yield from _answered(prompt, text, item, make)


def alpaca(row: Row, make: Maker) -> Rows:
    """Read AlpacaFarm's and AlpacaEval's rows: two outputs and a preference, or one output."""
    if "output_1" not in row:
        yield from candidates(row, make)
        return
    prompt, first, second = _two(row, make, ("output_1", "output_2"))
    yield from (prompt, first, second)
    given = row.get("preference", row.get("label"))
    said = row.get("raw_completion")
    text = storable(said) if isinstance(said, str) else ""
    if number(given) not in PLAIN_VOTES:
        text = f"{text}\n\n[preference as given: {given}]".strip()
    if first != second:
        annotator = optional_text(row, "annotator") or make.source
        yield make.preference(first, second, annotator, vote_of(given), text=text)


def pandalm(row: Row, make: Maker) -> Rows:
    """Read PandaLM's rows: two responses and three annotators' votes (0 is a tie)."""
    models = str(row.get("cmp_key") or "").split("_")
    named = {**row, **dict(zip(("generator_1", "generator_2"), models, strict=False))}
    prompt, first, second = _two(named, make, ("response1", "response2"))
    yield from (prompt, first, second)
    for name in sorted(n for n in row if n.startswith("annotator") and first != second):
        yield make.preference(first, second, human(name), vote_of(row[name]))


def justeval(row: Row, make: Maker) -> Rows:
    """Read Just-Eval's rows: an output with scores and reasons for several aspects."""
    prompt = make.prompt(only(row, "instruction"))
    yield prompt
    candidate = make.candidate(prompt, text_or_empty(row.get("output"), "output"), model_of(row))
    yield candidate
    verdicts = [
        ImportedVerdict(name=name, given=said.get("score"), comment=remark_of(said, "reason") or "")
        for name, value in fields_of(row, "scores").items()
        for said in [object_of(value, f"scores.{name}")]
    ]
    raw = "" if verdicts else remark_of(row, "raw_judgment") or ""
    yield make.critique(candidate, critic_of(row) or make.source, verdicts, raw)


FORMATS: Mapping[str, ImportFormat] = {
    "ultrafeedback": ImportFormat(
        detect=lambda row: "completions" in row and "instruction" in row,
        read=ultrafeedback,
        scale="1-5",
        semantics=2,
    ),
    "ifeval": ImportFormat(detect=lambda row: INSTRUCTIONS in row and "prompt" in row, read=ifeval),
    "pairs": ImportFormat(detect=lambda row: {"chosen", "rejected"} <= set(row), read=pairs),
    "alpacafarm": ImportFormat(
        detect=lambda row: {"output_1", "output_2"} <= set(row), read=alpaca
    ),
    "alpacaeval": ImportFormat(
        detect=lambda row: {"instruction", "output", "generator"} <= set(row), read=alpaca
    ),
    "pandalm": ImportFormat(
        detect=lambda row: {"response1", "response2"} <= set(row), read=pandalm
    ),
    "justeval": ImportFormat(
        detect=lambda row: {"instruction", "output", "raw_judgment"} <= set(row),
        read=justeval,
        scale="1-5",
    ),
    "candidates": ImportFormat(
        detect=lambda row: (
            any(row.get(n) is not None for n in (*ANSWER_FIELDS, *ENTRY_FIELDS))
            or _ends_with_an_answer(row)
        ),
        read=candidates,
    ),
    "prompts": ImportFormat(
        detect=lambda row: any(row.get(n) is not None for n in TEXT_FIELDS), read=prompts
    ),
}
"""The formats by name, in the order in which a file's first row is tried."""


def prompt_and_answer(row: Row, make: Maker) -> tuple[Prompt, str | None]:
    """Return the prompt of a row, and its answer: a field, or a conversation's last turn."""
    for field in ("messages", "conversations"):
        turns = row.get(field)
        if isinstance(turns, list):
            messages = conversation(cast("list[object]", turns), field)
            if messages[-1].role == "assistant":
                return make.prompt({**row, field: _turns(messages[:-1])}), messages[-1].content
    return make.prompt(row), answer_of(row)


def _turns(messages: tuple[Message, ...]) -> list[object]:
    return [{"role": m.role, "content": m.content} for m in messages]


def _ends_with_an_answer(row: Row) -> bool:
    turns = row.get("messages") or row.get("conversations")
    last = cast("list[object]", turns)[-1] if isinstance(turns, list) and turns else None
    if not isinstance(last, dict):
        return False
    turn = cast("Row", last)
    return turn.get("role") == "assistant" or turn.get("from") == "gpt"


def _answered(prompt: Prompt, text: str, row: Row, make: Maker) -> Rows:
    """Yield one answer with the row's ratings and scores."""
    candidate = make.candidate(prompt, text, model_of(row), remark_of(row, "principle"))
    yield candidate
    verdicts = verdicts_of(row)
    said = remark_of(row, "critique") or ""
    critic = critic_of(row)
    if verdicts or said:
        yield make.critique(candidate, critic or make.source, verdicts, said)
    for name in ("score", "reward"):
        yield from make.reward(candidate, f"{make.source}:{name}", row.get(name))


def verdicts_of(row: Row) -> list[ImportedVerdict]:
    """Return the ratings of a row: `ratings` by aspect, with `comments` by aspect beside them."""
    comments = fields_of(row, "comments")
    return [
        ImportedVerdict(name=name, given=given, comment=remark_of(comments, name) or "")
        for name, given in fields_of(row, "ratings").items()
    ]


def _two(row: Row, make: Maker, fields: tuple[str, str]) -> tuple[Prompt, Candidate, Candidate]:
    """Return a prompt and its two answers."""
    asked = row if row.get("instruction") else {**row, "instruction": row.get("input"), "input": ""}
    prompt = make.prompt({k: asked.get(k) for k in ("instruction", "input", "prompt_id", "task")})
    first, second = (
        make.candidate(
            prompt, text_or_empty(row.get(field), field), optional_text(row, f"generator_{place}")
        )
        for place, field in enumerate(fields, start=1)
    )
    return prompt, first, second
