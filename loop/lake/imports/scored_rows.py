"""Reading answers that a judge scored: Just-Eval, Prometheus, WildBench.

Just-Eval rates several aspects, or safety alone. Prometheus's prompt template holds the
instruction, the response, a reference and a rubric, beside it three scores with feedback. WildBench
has strengths, weaknesses and one score, and names the conversation by its session.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from ....stores.schemas import Row as StoredRow
from ...data.files import Row, RowError
from ...data.json_rows import parse_row
from ...data.row_fields import (
    critic_of,
    fields_of,
    list_of,
    model_of,
    object_of,
    only,
    remark_of,
    text_or_empty,
)
from ...data.row_texts import optional_text, text_of
from .imported_rows import ImportedVerdict, Maker

Rows = Iterator[StoredRow]
UNREAD = "[unread: no JSON object with a score for each aspect]"
ASKED, ANSWERED = "The instruction to evaluate", "Response to evaluate"
REFERENCE, RUBRIC = "Reference Answer (Score 5)", "Score Rubrics"
SECTION = re.compile(
    rf"^###(Task Description|{ASKED}|{ANSWERED}|{re.escape(REFERENCE)}|{RUBRIC}|Feedback): *$",
    re.MULTILINE,
)
"""The headings of Prometheus's template; a response may have others of its own."""
JUDGE = "gpt4"


def is_justeval(row: Row) -> bool:
    """Whether a row is one of Just-Eval: its aspects, its judge's raw reply, or safety alone."""
    judged = "raw_judgment" in row or isinstance(row.get("safety"), dict)
    return judged and {"instruction", "output"} <= set(row)


def justeval(row: Row, make: Maker) -> Rows:
    """Read an output with scores and reasons, which may stand in the judge's raw reply alone."""
    prompt = make.prompt(only(row, "instruction"))
    yield prompt
    candidate = make.candidate(prompt, text_or_empty(row.get("output"), "output"), model_of(row))
    yield candidate
    raw = remark_of(row, "raw_judgment")
    scores = fields_of(row, "scores") or _alone(row, "safety") or _scores_in(raw or "")
    verdicts = [
        ImportedVerdict(name=name, given=said.get("score"), comment=remark_of(said, "reason") or "")
        for name, value in scores.items()
        for said in [object_of(value, f"scores.{name}")]
    ]
    text = "" if verdicts else f"{raw or ''}\n\n{UNREAD}".strip()
    yield make.critique(candidate, critic_of(row) or make.source, verdicts, text)


def _alone(row: Row, name: str) -> Row:
    value = row.get(name)
    return Row() if value is None else Row({name: value})


def _scores_in(reply: str) -> Row:
    """Return the scores by aspect of a reply that is one JSON object, or none."""
    try:
        scores = parse_row(reply)
    except RowError:
        return Row()
    scored = all(isinstance(said, dict) and "score" in said for said in scores.values())
    return scores if scored else Row()


def prometheus(row: Row, make: Maker) -> Rows:
    """Read a response with several scores by the rubric of its own template."""
    asked = text_of(row.get("instruction"), "instruction")
    parts = dict(zip(SECTION.findall(asked), SECTION.split(asked)[2::2], strict=True))
    missing = [name for name in (ASKED, ANSWERED, RUBRIC) if name not in parts]
    if missing:
        raise RowError(f"'instruction' has no part '###{missing[0]}:'")
    prompt = make.prompt(
        Row(
            {
                "prompt": parts[ASKED].strip(),
                "reference": parts.get(REFERENCE, "").strip() or None,
                "family": row.get("category"),
            }
        )
    )
    yield prompt
    model = optional_text(row, "response_source")
    candidate = make.candidate(prompt, parts[ANSWERED].strip(), model)
    yield candidate
    rubric = parts[RUBRIC].strip()
    criterion = rubric.partition("\n")[0].strip("[] ")
    scores, said = list_of(row, "gpt4_score"), list_of(row, "gpt4_feedback")
    if len(scores) != len(said):
        raise RowError(f"'gpt4_score' has {len(scores)} entries, 'gpt4_feedback' {len(said)}")
    for n, (score, feedback) in enumerate(zip(scores, said, strict=True), start=1):
        reason = text_or_empty(feedback, f"gpt4_feedback[{n}]")
        verdict = ImportedVerdict(name=criterion, given=score, comment=reason)
        critique = make.critique(candidate, JUDGE, [verdict], rubric, sample=n if n > 1 else None)
        yield replace(critique, reference_used=prompt.reference is not None)


def wildbench_tasks(row: Row, make: Maker) -> Rows:
    """Read a conversation of WildBench, to which later files name answers by its session."""
    asked = {"messages": row.get("conversation_input"), "family": row.get("primary_tag")}
    prompt = make.prompt(Row(asked))
    make.named.prompts[text_of(row.get("session_id"), "session_id")] = prompt
    yield prompt


def wildbench_scores(row: Row, make: Maker) -> Rows:
    """Read an answer with a critique in words and a score."""
    session = text_of(row.get("session_id"), "session_id")
    prompt = make.named.prompts.get(session)
    if prompt is None:
        raise RowError(
            f"answers the conversation of the session {session!r}, whose text no earlier file "
            "holds: name WildBench's file of tasks (session_id, conversation_input) before this one"
        )
    text = text_or_empty(row.get("model_output"), "model_output")
    candidate = make.candidate(prompt, text, model_of(row))
    whole = row.get("len_chars")
    if isinstance(whole, int) and whole > len(text):
        candidate = replace(candidate, finish_reason="length")
    yield candidate
    feedback = fields_of(row, "feedback")
    given = row.get("score", feedback.get("score"))
    said = "\n\n".join(
        f"{name.capitalize()}: {value}" for name, value in feedback.items() if name != "score"
    )
    verdict = ImportedVerdict(name="score", given=given)
    yield make.critique(candidate, critic_of(row) or make.source, [verdict], said)
