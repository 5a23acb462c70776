"""Reading FActScore's biographies: answers whose atomic statements people judged.

`annotations` has the sentences of an answer; each has the statements that people made of it, with
their labels: S (supported), NS (not supported), IR (irrelevant). An answer without annotations was
labelled as abstaining. A sentence labelled irrelevant as a whole, without statements, counts as one
irrelevant statement, as in the paper.
"""

from collections.abc import Iterator, Mapping

from ....stores.keys import row_id
from ....stores.records import SCORED, Breakdown, Candidate, Claim, Support
from ....stores.schemas import Row as StoredRow
from ...data.files import Row, RowError
from ...data.row_fields import human, list_of, object_of, text_or_empty
from ...data.row_texts import text_of
from .imported_rows import Maker

TASK = "facts"
QUESTION = "Question: "
"""The beginning of the published prompts."""
JUDGE = human("factscore")
SENTENCES, FACTS, RELEVANT = "annotations", "human-atomic-facts", "is-relevant"
LABELS: Mapping[object, Support] = {"S": "supported", "NS": "not_supported", "IR": "irrelevant"}


def is_factscore(row: Row) -> bool:
    """Whether a row is a biography with people's labels of its statements."""
    return {"input", "output", "topic", SENTENCES} <= row.keys()


def factscore(row: Row, make: Maker) -> Iterator[StoredRow]:
    """Read a biography, its sentences and their statements with people's labels."""
    topic = text_of(row.get("input"), "input").removeprefix(QUESTION)
    rarity = next((name for name in list_of(row, "cat") if isinstance(name, str)), None)
    named = {"prompt": topic, "task": make.task or TASK, "family": rarity}
    prompt = make.prompt(Row({k: v for k, v in named.items() if v is not None}))
    candidate = make.candidate(prompt, text_or_empty(row.get("output"), "output"), None)
    yield from (prompt, candidate)
    if row.get(SENTENCES) is None:
        yield _breakdown(candidate, 0, "", ())
        return
    claims = 0
    for place, given in enumerate(list_of(row, SENTENCES)):
        where = f"{SENTENCES}[{place + 1}]"
        sentence = object_of(given, where)
        text = text_of(sentence.get("text"), f"{where}.text")
        labels = list(_labels(sentence, text, where))
        yield _breakdown(candidate, place, text, tuple(statement for statement, _ in labels))
        for statement, verdict in labels:
            yield _claim(candidate, claims, statement, verdict)
            claims += 1


def _labels(sentence: Row, text: str, where: str) -> Iterator[tuple[str, Support]]:
    """Yield the statements of a sentence, with their labels."""
    if sentence.get(FACTS) is None:
        if sentence.get(RELEVANT) is False:
            yield text, "irrelevant"
        return
    for number, given in enumerate(list_of(sentence, FACTS), start=1):
        fact = object_of(given, f"{where}.{FACTS}[{number}]")
        label = fact.get("label")
        if label not in LABELS:
            known = ", ".join(map(str, LABELS))
            raise RowError(f"{where}.{FACTS}[{number}].label is {label!r}; the labels are {known}")
        yield text_of(fact.get("text"), f"{where}.{FACTS}[{number}].text"), LABELS[label]


def _breakdown(
    candidate: Candidate, place: int, passage: str, statements: tuple[str, ...]
) -> Breakdown:
    inputs = [candidate.candidate_id, JUDGE, place]
    return Breakdown(
        breakdown_id=row_id("broken", inputs),
        candidate_id=candidate.candidate_id,
        prompt_id=candidate.prompt_id,
        iteration=candidate.iteration,
        judge=JUDGE,
        place=place,
        passage=passage,
        statements=statements,
        status=SCORED,
        attempts=0,
        text="",
    )


def _claim(candidate: Candidate, place: int, statement: str, verdict: Support) -> Claim:
    return Claim(
        claim_id=row_id("claim", [candidate.candidate_id, JUDGE, place]),
        candidate_id=candidate.candidate_id,
        prompt_id=candidate.prompt_id,
        iteration=candidate.iteration,
        judge=JUDGE,
        place=place,
        statement=statement,
        verdict=verdict,
        reason="",
        status=SCORED,
        attempts=0,
        text="",
    )
