"""Reading MT-bench: questions of several turns, models' answers to them, and votes.

A prompt is what the user has said up to a turn. Each model's answer to an earlier turn is its own,
so it is no part of the prompt that two models share, but a candidate for the prompt of that turn.
Votes without conversations are on answers that an earlier file of the import holds.
"""

from collections.abc import Iterator, Sequence
from typing import cast

from ....stores.keys import Json
from ....stores.records import Candidate, Prompt
from ....stores.schemas import Row as StoredRow
from ...data.conversations import conversation
from ...data.files import Row, RowError
from ...data.row_fields import INCONSISTENT, WINNERS, human, list_of, object_of, text_or_empty
from ...data.row_texts import identity_field, text_of
from .imported_rows import Maker

Rows = Iterator[StoredRow]
PEOPLE = ("author_", "expert_")
"""What the names of MT-bench's human judges begin with."""


def questions(row: Row, make: Maker) -> Rows:
    """Read a question: a prompt for each of its turns."""
    name = _question(row)
    asked = [_said(turn, n) for n, turn in enumerate(list_of(row, "turns"), start=1)]
    references = list_of(row, "reference")
    for turn in range(1, len(asked) + 1):
        reference = references[turn - 1] if turn <= len(references) else None
        prompt = _prompt(row, make, name, asked[:turn], reference or None)
        make.named.prompts[f"{name}, turn {turn}"] = prompt
        yield prompt


def answers(row: Row, make: Maker) -> Rows:
    """Read a model's answers to a question of an earlier file."""
    name, model = _question(row), text_of(row.get("model_id"), "model_id")
    for n, choice in enumerate(list_of(row, "choices"), start=1):
        given = list_of(object_of(choice, f"choices[{n}]"), "turns")
        for turn, answer in enumerate(given, start=1):
            prompt = make.named.prompts.get(f"{name}, turn {turn}")
            if prompt is None:
                raise RowError(
                    f"answers turn {turn} of {name}, which no earlier file holds: name the file of "
                    "questions (question_id, turns) before this one"
                )
            text = text_or_empty(answer, f"choices[{n}].turns[{turn}]")
            candidate = make.candidate(prompt, text, model, sample=n if n > 1 else None)
            make.named.candidates.setdefault(f"{name}, turn {turn}, {model}", candidate)
            yield candidate


def votes(row: Row, make: Maker) -> Rows:
    """Read a vote on two models' answers in a turn."""
    turn = row.get("turn", 1)
    if not isinstance(turn, int) or turn < 1:
        raise RowError("'turn' must be a whole number from 1")
    sides = list[Candidate]()
    for side in "ab":
        made = list(_side(row, make, side, turn))
        yield from made
        sides += [one for one in made if isinstance(one, Candidate)]
    winner, judge = row.get("winner"), text_of(row.get("judge"), "judge")
    if not isinstance(winner, str) or winner not in WINNERS:
        raise RowError(f"'winner' must be one of {', '.join(WINNERS)}")
    annotator = human(judge) if judge.startswith(PEOPLE) else judge
    text = winner if winner == INCONSISTENT else ""
    yield make.preference(sides[0], sides[1], annotator, WINNERS[winner], text=text)


def _side(row: Row, make: Maker, side: str, turn: int) -> Rows:
    """Return a side's answer, with its prompt if the row has the conversation."""
    name, model = _question(row), text_of(row.get(f"model_{side}"), f"model_{side}")
    field = f"conversation_{side}"
    if row.get(field) is None:
        known = make.named.candidates.get(f"{name}, turn {turn}, {model}")
        if known is None:
            raise RowError(
                f"votes on the answer of {model} to turn {turn} of {name}, and its text is neither "
                f"in {field!r} nor in an earlier file: name the files of questions (turns) and of "
                "answers (model_id, choices) before this one; `lpfloop judge-check` reads votes "
                "without texts"
            )
        yield known
        return
    messages = conversation(list_of(row, field), field)
    asked, answered = ([m.content for m in messages if m.role == r] for r in ("user", "assistant"))
    if len(asked) < turn or len(answered) < turn:
        raise RowError(f"{field!r} has no turn {turn}")
    named = make.named.prompts.get(f"{name}, turn {turn}")
    prompt = named or _prompt(row, make, name, asked[:turn], None)
    yield prompt
    yield make.candidate(prompt, answered[turn - 1], model)


def _question(row: Row) -> str:
    identity = identity_field(row, "question_id")
    if identity is None:
        raise RowError("'question_id' is missing")
    return f"question {identity}"


def _said(turn: object, place: int) -> str:
    """Return what the user says in a turn: a text, or an object with `content`."""
    if isinstance(turn, dict):
        turn = cast("Row", turn).get("content")
    return text_of(turn, f"turns[{place}]")


def _prompt(row: Row, make: Maker, name: str, asked: Sequence[str], reference: object) -> Prompt:
    messages: list[Json] = [{"role": "user", "content": text} for text in asked]
    category = row.get("category")
    return make.prompt(
        Row({"messages": messages, "reference": reference, "family": category, "cluster": name})
    )
