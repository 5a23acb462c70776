"""Labelled and worked solutions, through the math verifier."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from lpfloop.critics.verify import MATH, Verdict, Verifier
from lpfloop.stores.records import Message, Prompt

from .study import Disagreement, Found, Row, Study, counts, rows_of, share

SYSTEMS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """An answer to a problem, its place in the file, and whether its label is right."""

    place: str
    question: str
    reference: str
    answer: str
    right: bool = True


def verified(solutions: Iterable[Solution]) -> Iterator[tuple[Solution, Verdict]]:
    """Yield each solution with the verdict of the math verifier."""
    asked = list(solutions)
    with Verifier() as verifier:
        yield from zip(asked, verifier.check([_item(one) for one in asked]), strict=True)


def _item(solution: Solution) -> tuple[Prompt, str]:
    prompt = Prompt(
        prompt_id=solution.place,
        messages=(Message(role="user", content=solution.question),),
        task=MATH,
        split="held-out",
        source="published",
        checks=(),
        reference=solution.reference,
    )
    return prompt, solution.answer


def found_of(solutions: Iterable[Solution]) -> Found:
    """Compare the verifier's verdicts with the labels."""
    found, told, whole = Found(), Counter[str](), 0
    for solution, verdict in verified(solutions):
        whole += 1
        told[verdict.reason] += 1
        told["unmarked"] += int(dict(verdict.metrics).get("math_unmarked", 0))
        if verdict.rating != (1 if solution.right else -1):
            found.disagreements.append(
                Disagreement(
                    place=solution.place,
                    published="right" if solution.right else "wrong",
                    ours=verdict.reason,
                    text=solution.answer,
                )
            )
    found.figures["agrees with the label"] = share(whole - len(found.disagreements), whole)
    found.figures["verdicts"] = counts(told)
    return found


def systems(folder: Path) -> Iterator[Solution]:
    """Yield the labelled solutions of four systems to problems of GSM8K."""
    for number, row in enumerate(rows_of(folder / "gsm8k_model_solutions.jsonl"), start=1):
        for system in SYSTEMS:
            yield Solution(
                place=f"row {number}, {system}",
                question=str(row["question"]),
                reference=str(row["ground_truth"]),
                answer=str(cast("Row", row[system])["solution"]),
                right=bool(cast("Row", row[system])["is_correct"]),
            )


def eight(folder: Path) -> Iterator[Solution]:
    """Yield the eight labelled samples to each problem of Qwen2.5-Math."""
    for row in rows_of(folder / "qwen_maj8.jsonl"):
        samples = zip(cast("list[str]", row["code"]), cast("list[bool]", row["score"]), strict=True)
        for number, (text, right) in enumerate(samples):
            yield Solution(
                place=f"problem {row['idx']}, sample {number}",
                question=str(row["question"]),
                reference=str(row["gt"]),
                answer=str(text),
                right=bool(right),
            )


def _by_field(file: str, *, question: str, reference: str, answer: str) -> Callable[[Path], Found]:
    """Return a study of answers that equal their references, so all are right."""

    def find(folder: Path) -> Found:
        return found_of(
            Solution(
                place=f"row {number}",
                question=str(row[question]),
                reference=str(row[reference]),
                answer=str(row[answer]),
            )
            for number, row in enumerate(rows_of(folder / file), start=1)
        )

    return find


MATHEMATICS: Mapping[str, Study] = {
    "gsm8k-systems": Study(
        through="the math verifier, against the labels of four systems' solutions",
        find=lambda folder: found_of(systems(folder)),
    ),
    "qwen-maj8": Study(
        through="the math verifier, against the labels of eight samples a problem",
        find=lambda folder: found_of(eight(folder)),
    ),
    "gsm8k-train": Study(
        through="the math verifier, each worked solution against itself",
        find=_by_field(
            "gsm8k_train_first4000.jsonl", question="question", reference="answer", answer="answer"
        ),
    ),
    "math500": Study(
        through="the math verifier, each worked solution against the answer",
        find=_by_field("math500.jsonl", question="problem", reference="answer", answer="solution"),
    ),
    "svamp": Study(
        through="the math verifier, each equation against the answer",
        find=_by_field("svamp.jsonl", question="Question", reference="Answer", answer="Equation"),
    ),
}
