"""The published formats that can be imported: each turns one row of a file into rows of the lake.

Their readers have modules of their own.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ....stores.schemas import Row as StoredRow
from ...data.files import Row
from ...data.ifeval_fields import INSTRUCTIONS
from ...data.prompt_context import INPUT
from ...data.prompt_rows import TEXT_FIELDS
from ...data.rating_scale import THREE_LEVEL
from ...data.row_fields import ANSWER_FIELDS
from .answer_rows import ENTRY_FIELDS, candidates, ends_with_an_answer, prompts
from .compared_rows import OVERALL, alpaca, helpsteer3, pandalm
from .factscore_rows import factscore, is_factscore
from .fine_grained_rows import fine_grained, is_fine_grained
from .ifeval_rows import ifeval
from .imported_rows import Maker
from .labelled_rows import (
    has_solutions,
    is_truthfulqa,
    samples,
    solutions,
    truthfulqa,
)
from .llmbar_rows import LABELLED_PAIR, VERDICT, pairs_with_label, verdicts_in_orders
from .mt_bench_rows import answers, questions, votes
from .pair_forms import pairs
from .scored_rows import is_justeval, justeval, prometheus, wildbench_scores, wildbench_tasks
from .ultrafeedback_rows import ultrafeedback

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


def _has(*names: str) -> Callable[[Row], bool]:
    """Return what says whether a row has all these fields."""
    return lambda row: row.keys() >= set(names)


FORMATS: Mapping[str, ImportFormat] = {
    "ultrafeedback": ImportFormat(
        detect=_has("completions", "instruction"), read=ultrafeedback, scale="1-5", semantics=4
    ),
    "ifeval": ImportFormat(
        detect=lambda row: INSTRUCTIONS in row and "prompt" in row, read=ifeval, semantics=2
    ),
    "pairs": ImportFormat(detect=_has("chosen", "rejected"), read=pairs, semantics=2),
    "llmbar": ImportFormat(
        detect=lambda row: set(row) >= LABELLED_PAIR and "instruction" not in row,
        read=pairs_with_label,
    ),
    "llmbar-verdicts": ImportFormat(
        detect=lambda row: set(row) >= VERDICT and bool({"order1", "winner_order1"} & set(row)),
        read=verdicts_in_orders,
    ),
    "alpacafarm": ImportFormat(detect=_has("output_1", "output_2"), read=alpaca, semantics=2),
    "helpsteer3": ImportFormat(
        detect=_has("context", "response1", "response2", OVERALL), read=helpsteer3
    ),
    "pandalm": ImportFormat(detect=_has("response1", "response2"), read=pandalm, semantics=3),
    "justeval": ImportFormat(detect=is_justeval, read=justeval, scale="1-5", semantics=3),
    "alpacaeval": ImportFormat(
        detect=_has("instruction", "output", "generator"), read=alpaca, semantics=2
    ),
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
    "truthfulqa": ImportFormat(detect=is_truthfulqa, read=truthfulqa, semantics=2),
    "solutions": ImportFormat(detect=has_solutions, read=solutions),
    "samples": ImportFormat(detect=_has("question", "gt", "code"), read=samples),
    "candidates": ImportFormat(
        detect=lambda row: (
            any(row.get(n) is not None for n in (*ANSWER_FIELDS, *ENTRY_FIELDS))
            or ends_with_an_answer(row)
        ),
        read=candidates,
        semantics=3,
    ),
    "prompts": ImportFormat(
        detect=lambda row: any(row.get(n) is not None for n in (*TEXT_FIELDS, INPUT)),
        read=prompts,
        semantics=3,
    ),
}
"""The formats by name, in the order in which a file's first row is tried."""
