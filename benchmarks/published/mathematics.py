"""Labelled and worked solutions, through the math verifier."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from lpfloop.critics.verify import MATH, Verdict, Verifier
from lpfloop.stores.records import Message, Prompt

from .study import Disagreement, Found, Row, Study, counts, share

SYSTEMS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """An answer to a problem, where it stands, and whether it is labelled right."""

    place: str
    question: str
    reference: str
    answer: str
    right: bool = True


def _verified(solutions: Iterable[Solution]) -> Iterator[tuple[Solution, Verdict]]:
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


def _found(solutions: Iterable[Solution]) -> Found:
    """Compare the verifier's verdicts with the labels."""
    found, told, whole = Found(), Counter[str](), 0
    for solution, verdict in _verified(solutions):
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


def _systems(rows: list[Row]) -> Found:
    return _found(
        Solution(
            place=f"row {number}, {system}",
            question=row["question"],
            reference=row["ground_truth"],
            answer=row[system]["solution"],
            right=row[system]["is_correct"],
        )
        for number, row in enumerate(rows, start=1)
        for system in SYSTEMS
    )


def _eight(rows: list[Row]) -> Found:
    return _found(
        Solution(
            place=f"problem {row['idx']}, sample {sample}",
            question=row["question"],
            reference=row["gt"],
            answer=code,
            right=right,
        )
        for row in rows
        for sample, (code, right) in enumerate(zip(row["code"], row["score"], strict=True))
    )


def _themselves(names: Mapping[str, str]) -> Study:
    """Compare answers with references that say the same."""

    def find(rows: list[Row]) -> Found:
        return _found(
            Solution(
                place=f"row {number}",
                question=str(row[names["question"]]),
                reference=str(row[names["reference"]]),
                answer=str(row[names["answer"]]),
            )
            for number, row in enumerate(rows, start=1)
        )

    return Study(file=names["file"], through=names["through"], find=find)


MATHEMATICS: Mapping[str, Study] = {
    "gsm8k-systems": Study(
        file="gsm8k_model_solutions.jsonl",
        through="the math verifier, against the labels of four systems' solutions",
        find=_systems,
    ),
    "qwen-maj8": Study(
        file="qwen_maj8.jsonl",
        through="the math verifier, against the labels of eight samples a problem",
        find=_eight,
    ),
    "gsm8k-train": _themselves(
        {
            "file": "gsm8k_train_first4000.jsonl",
            "through": "the math verifier, each worked solution against itself",
            "question": "question",
            "reference": "answer",
            "answer": "answer",
        }
    ),
    "math500": _themselves(
        {
            "file": "math500.jsonl",
            "through": "the math verifier, each worked solution against the answer",
            "question": "problem",
            "reference": "answer",
            "answer": "solution",
        }
    ),
    "svamp": _themselves(
        {
            "file": "svamp.jsonl",
            "through": "the math verifier, each equation against the answer",
            "question": "Question",
            "reference": "Answer",
            "answer": "Equation",
        }
    ),
}
