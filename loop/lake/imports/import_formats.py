"""The published formats that can be imported: each turns one row of a file into rows of the lake.

UltraFeedback: openbmb/UltraFeedback's `completions` with four annotated aspects, and the binarised
form (`chosen`, `rejected`) that TRL takes, too. AlpacaFarm and AlpacaEval: `output_1`, `output_2`
and `preference`, or model outputs. PandaLM: votes of three people and two judges. The others have a
module each.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
    MODEL_FIELDS,
    PLAIN_VOTES,
    answer_of,
    critic_of,
    fields_of,
    human,
    list_of,
    model_of,
    object_of,
    published_text,
    remark_of,
    text_or_empty,
    vote_of,
)
from .factscore_rows import factscore, is_factscore
from .fine_grained_rows import fine_grained, is_fine_grained
from .ifeval_rows import ifeval
from .imported_rows import ImportedVerdict, Maker
from .labelled_rows import (
    has_solutions,
    is_truthfulqa,
    label,
    samples,
    solutions,
    truthfulqa,
)
from .llmbar_rows import LABELLED_PAIR, VERDICT, pairs_with_label, verdicts_in_orders
from .mt_bench_rows import answers, questions, votes
from .pair_forms import pairs
from .scored_rows import is_justeval, justeval, prometheus, wildbench_scores, wildbench_tasks
from .ultrafeedback_rows import ultrafeedback

ENTRY_FIELDS = ("candidates", "completions", "responses")
BESIDE = {"model": "models", "label": "labels", "score": "scores", "reward": "rewards"}
"""The lists that may stand beside a list of texts, by the field that each holds for one text."""
LABELS = ("label", "correct", "is_correct")
"""The fields that may say, by true or false, whether an answer is right."""
FILED = {
    "family": ("family", "category", "subject", "motivation_app"),
    "source": ("source", "dataset"),
}
"""The fields that may hold a prompt's family and its source, in their order."""
ASKED = frozenset({"instruction", "input", "prompt_id", "task", "family", "source"})
"""The fields of the prompt of a row with two answers."""
JUDGES = "_result"
"""What the names of the fields with judges' verdicts end with in PandaLM's rows."""

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
    yield make.prompt(_filed(row))


def candidates(row: Row, make: Maker) -> Rows:
    """Read a prompt with one or more answers, which may have ratings, labels and a score."""
    asked = _filed(row)
    several = [
        name for name in (*ANSWER_FIELDS, *ENTRY_FIELDS) if isinstance(row.glance(name), list)
    ]
    texts = [name for name in several if _all_texts(list_of(row, name))]
    if texts:
        prompt, answer = make.prompt(asked), None
    else:
        prompt, answer = prompt_and_answer(asked, make)
    yield prompt
    if answer is not None:
        yield from _answered(prompt, answer, row, make)
    for name in texts:
        yield from _samples(prompt, name, row, make)
    for name in [name for name in ENTRY_FIELDS if name not in texts]:
        for place, entry in enumerate(list_of(row, name), start=1):
            item = object_of(entry, f"{name}[{place}]")
            text = answer_of(item)
            if text is None:
                raise RowError(f"{name}[{place}] has no {' or '.join(ANSWER_FIELDS)}")
            yield from _answered(prompt, text, item, make)


def _all_texts(entries: list[object]) -> bool:
    return bool(entries) and all(isinstance(entry, str) for entry in entries)


def _samples(prompt: Prompt, name: str, row: Row, make: Maker) -> Rows:
    """Read a list of answers that are texts, with lists of models, labels and scores beside it."""
    texts = list_of(row, name)
    beside = {one: list_of(row, several) for one, several in BESIDE.items() if several in row}
    for one, given in beside.items():
        if len(given) != len(texts):
            raise RowError(f"{BESIDE[one]!r} has {len(given)} entries for {len(texts)} of {name!r}")
    shared = {one: row.get(one) for one in MODEL_FIELDS if row.get(one) is not None}
    for n, text in enumerate(texts, start=1):
        item = Row({**shared, **{one: given[n - 1] for one, given in beside.items()}})
        yield from _answered(prompt, text_or_empty(text, f"{name}[{n}]"), item, make, sample=n)


def _filed(row: Row) -> Row:
    """Return a row with its category as the family, and its data set as the source."""
    named = {name: _first_text(row, given) for name, given in FILED.items()}
    return row.having({name: text for name, text in named.items() if text is not None})


def _first_text(row: Row, names: Sequence[str]) -> str | None:
    texts = (row.get(name) for name in names)
    return next((text for text in texts if isinstance(text, str) and text.strip()), None)


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
    """Read PandaLM's rows: two responses, people's votes and judges' (0 is a tie)."""
    models = str(row.get("cmp_key") or "").split("_")
    named = row.having(dict(zip(("generator_1", "generator_2"), models, strict=False)))
    prompt, first, second = _two(named, make, ("response1", "response2"))
    yield from (prompt, first, second)
    if first == second:
        return
    for name in sorted(n for n in row if n.startswith("annotator")):
        yield make.preference(first, second, human(name), vote_of(row[name]))
    for name in sorted(n for n in row if n.endswith(JUDGES)):
        judge, given = name.removesuffix(JUDGES), row[name]
        tied = isinstance(given, str) and given.lower() == "tie"
        text = remark_of(row, f"{judge}_reason") or ""
        yield make.preference(first, second, judge, "tie" if tied else vote_of(given), text=text)


def _has(*names: str) -> Callable[[Row], bool]:
    """Return what says whether a row has all these fields."""
    return lambda row: row.keys() >= set(names)


FORMATS: Mapping[str, ImportFormat] = {
    "ultrafeedback": ImportFormat(
        detect=_has("completions", "instruction"), read=ultrafeedback, scale="1-5", semantics=2
    ),
    "ifeval": ImportFormat(detect=lambda row: INSTRUCTIONS in row and "prompt" in row, read=ifeval),
    "pairs": ImportFormat(detect=_has("chosen", "rejected"), read=pairs),
    "llmbar": ImportFormat(
        detect=lambda row: set(row) >= LABELLED_PAIR and "instruction" not in row,
        read=pairs_with_label,
    ),
    "llmbar-verdicts": ImportFormat(
        detect=lambda row: set(row) >= VERDICT and bool({"order1", "winner_order1"} & set(row)),
        read=verdicts_in_orders,
    ),
    "alpacafarm": ImportFormat(detect=_has("output_1", "output_2"), read=alpaca),
    "pandalm": ImportFormat(detect=_has("response1", "response2"), read=pandalm, semantics=2),
    "justeval": ImportFormat(detect=is_justeval, read=justeval, scale="1-5", semantics=2),
    "alpacaeval": ImportFormat(detect=_has("instruction", "output", "generator"), read=alpaca),
    "prometheus": ImportFormat(
        detect=_has("instruction", "gpt4_score", "gpt4_feedback"), read=prometheus, scale="1-5"
    ),
    "wildbench-tasks": ImportFormat(
        detect=_has("session_id", "conversation_input"), read=wildbench_tasks, scale="1-10"
    ),
    "wildbench": ImportFormat(
        detect=_has("session_id", "model_output", "feedback"), read=wildbench_scores, scale="1-10"
    ),
    "mt-bench": ImportFormat(detect=_has("question_id", "turns"), read=questions),
    "mt-bench-answers": ImportFormat(
        detect=_has("question_id", "model_id", "choices"), read=answers
    ),
    "mt-bench-votes": ImportFormat(
        detect=_has("question_id", "model_a", "model_b", "winner", "judge"), read=votes
    ),
    "factscore": ImportFormat(detect=is_factscore, read=factscore),
    "fine-grained": ImportFormat(detect=is_fine_grained, read=fine_grained),
    "truthfulqa": ImportFormat(detect=is_truthfulqa, read=truthfulqa),
    "solutions": ImportFormat(detect=has_solutions, read=solutions),
    "samples": ImportFormat(detect=_has("question", "gt", "code"), read=samples),
    "candidates": ImportFormat(
        detect=lambda row: (
            any(row.get(n) is not None for n in (*ANSWER_FIELDS, *ENTRY_FIELDS))
            or _ends_with_an_answer(row)
        ),
        read=candidates,
        semantics=2,
    ),
    "prompts": ImportFormat(
        detect=lambda row: (
            any(row.get(n) is not None for n in TEXT_FIELDS)
            or "question" in {name.lower() for name in row}
        ),
        read=prompts,
        semantics=2,
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
                return make.prompt(row.having({field: _turns(messages[:-1])})), messages[-1].content
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


def _answered(
    prompt: Prompt, text: str, row: Row, make: Maker, *, sample: int | None = None
) -> Rows:
    """Yield one answer with the row's ratings, labels and scores."""
    principle = remark_of(row, "principle")
    candidate = make.candidate(prompt, text, model_of(row), principle, sample=sample)
    yield candidate
    for name in LABELS:
        if isinstance(row.glance(name), bool):
            yield label(make, candidate, name, right=row.get(name) is True)
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
    asked = _filed(row)
    if not str(row.get("instruction") or "").strip():
        asked = asked.having({"instruction": row.get("input"), "input": ""})
    prompt = make.prompt(asked.without(asked.keys() - ASKED))
    first, second = (
        make.candidate(
            prompt, published_text(row.get(field), field), optional_text(row, f"generator_{place}")
        )
        for place, field in enumerate(fields, start=1)
    )
    return prompt, first, second
