"""The published formats that can be imported: each turns one row of a file into rows of the lake.

UltraFeedback: openbmb/UltraFeedback's `completions` with four annotated aspects, and the binarised
form (`chosen`, `rejected`) that TRL takes, too. AlpacaFarm and AlpacaEval: `output_1`, `output_2`
and `preference`, or model outputs. PandaLM: three annotators' votes. Just-Eval: scored aspects.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from ...stores.records import Candidate, Message, Prompt, storable
from ...stores.schemas import Row as StoredRow
from ..files import Row, RowError
from ..prompt_rows import TEXT_FIELDS, conversation, optional_text
from .fields import (
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
    side_of,
    text_or_empty,
    vote_of,
)
from .rows import Maker, Verdict
from .scale import THREE_LEVEL, number

ENTRY_FIELDS = ("candidates", "completions", "responses")

NO_ANSWER = "None"
"""What UltraFeedback has where there is no reference."""

Rows = Iterator[StoredRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A format: how it is recognised, the scale of its ratings, and how a row is read."""

    detect: Callable[[Row], bool]
    read: Callable[[Row, Maker], Rows]
    scale: str = THREE_LEVEL


def prompts(row: Row, make: Maker) -> Rows:
    """Read a prompt alone."""
    yield make.prompt(row)


def candidates(row: Row, make: Maker) -> Rows:
    """Read a prompt with one answer or several, each perhaps with ratings and a score."""
    prompt, answer = _prompt_and_answer(row, make)
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


def ultrafeedback(row: Row, make: Maker) -> Rows:
    """Read UltraFeedback: annotated completions, or the binarised form."""
    if "chosen" in row:
        yield from pairs(row, make)
        return
    asked = only(row, "messages" if row.get("messages") else "instruction")
    right = [answer for answer in list_of(row, "correct_answers") if answer != NO_ANSWER]
    prompt = make.prompt({"reference": right[0] if len(right) == 1 else None, **asked})
    yield prompt
    for place, entry in enumerate(list_of(row, "completions"), start=1):
        item = object_of(entry, f"completions[{place}]")
        text = item.get("response")
        candidate = make.candidate(
            prompt,
            text_or_empty(text, f"completions[{place}].response"),
            optional_text(item, "model"),
            remark_of(item, "principle"),
        )
        yield candidate
        verdicts = [_verdict(n, v) for n, v in fields_of(item, "annotations").items()]
        critique = remark_of(item, "critique") or ""
        if verdicts or critique:
            yield make.critique(candidate, make.source, verdicts, critique)
        for name in ("overall_score", "fine-grained_score"):
            yield from make.reward(candidate, f"{make.source}:{name}", item.get(name))


def pairs(row: Row, make: Maker) -> Rows:
    """Read a chosen and a rejected answer, as texts or as conversations, perhaps with scores."""
    before, chosen = side_of(row, "chosen")
    other, rejected = side_of(row, "rejected")
    if before != other:
        raise RowError("'chosen' and 'rejected' do not share their prompt")
    shared = {k: v for k, v in row.items() if k not in TEXT_FIELDS}
    if before:
        turns = [{"role": m.role, "content": m.content} for m in before]
        prompt = make.prompt({**shared, "messages": turns})
    else:
        prompt = make.prompt({k: v for k, v in row.items() if k != "messages"})
    scored = {**fields_of(row, "metadata"), **row}
    scores = number(scored.get("score_chosen")), number(scored.get("score_rejected"))
    first = make.candidate(prompt, chosen, optional_text(row, "chosen_model"))
    second = make.candidate(prompt, rejected, optional_text(row, "rejected_model"))
    yield prompt
    if first == second:
        return
    yield first
    yield second
    for candidate, score in zip((first, second), scores, strict=True):
        yield from make.reward(candidate, f"{make.source}:score", score)
    yield make.preference(first, second, make.source, "first")
    yield make.pair(prompt, first, second, scores)


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
        Verdict(name=name, given=said.get("score"), comment=remark_of(said, "reason") or "")
        for name, value in fields_of(row, "scores").items()
        for said in [object_of(value, f"scores.{name}")]
    ]
    raw = "" if verdicts else remark_of(row, "raw_judgment") or ""
    yield make.critique(candidate, critic_of(row) or make.source, verdicts, raw)


FORMATS: Mapping[str, Format] = {
    "ultrafeedback": Format(
        detect=lambda row: "completions" in row and "instruction" in row,
        read=ultrafeedback,
        scale="1-5",
    ),
    "pairs": Format(detect=lambda row: {"chosen", "rejected"} <= set(row), read=pairs),
    "alpacafarm": Format(detect=lambda row: {"output_1", "output_2"} <= set(row), read=alpaca),
    "alpacaeval": Format(
        detect=lambda row: {"instruction", "output", "generator"} <= set(row), read=alpaca
    ),
    "pandalm": Format(detect=lambda row: {"response1", "response2"} <= set(row), read=pandalm),
    "justeval": Format(
        detect=lambda row: {"instruction", "output", "raw_judgment"} <= set(row),
        read=justeval,
        scale="1-5",
    ),
    "candidates": Format(
        detect=lambda row: (
            any(row.get(n) is not None for n in (*ANSWER_FIELDS, *ENTRY_FIELDS))
            or _ends_with_an_answer(row)
        ),
        read=candidates,
    ),
    "prompts": Format(
        detect=lambda row: any(row.get(n) is not None for n in TEXT_FIELDS), read=prompts
    ),
}
"""The formats by name, in the order in which a file's first row is tried."""


def _prompt_and_answer(row: Row, make: Maker) -> tuple[Prompt, str | None]:
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
    """Give one answer with what the row says of it."""
    candidate = make.candidate(prompt, text, model_of(row), remark_of(row, "principle"))
    yield candidate
    verdicts = verdicts_of(row)
    said = remark_of(row, "critique") or ""
    critic = critic_of(row)
    if verdicts or said:
        yield make.critique(candidate, critic or make.source, verdicts, said)
    for name in ("score", "reward"):
        yield from make.reward(candidate, f"{make.source}:{name}", row.get(name))


def verdicts_of(row: Row) -> list[Verdict]:
    """Return the ratings of a row: `ratings` by aspect, with `comments` by aspect beside them."""
    comments = fields_of(row, "comments")
    return [
        Verdict(name=name, given=given, comment=remark_of(comments, name) or "")
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


def _verdict(name: str, value: object) -> Verdict:
    """Return UltraFeedback's annotation of one aspect; a list of them has the last word."""
    if isinstance(value, list):
        value = cast("list[object]", value)[-1] if value else {}
    said = object_of(value, f"annotations.{name}")
    reasons = [remark_of(said, "Rationale For Rating"), remark_of(said, "Rationale")]
    comment = "\n\n".join(reason for reason in reasons if reason)
    return Verdict(name=name, given=said.get("Rating"), comment=comment)
