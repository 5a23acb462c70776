"""Answers from outside that are to be critiqued: each row of a file is a prompt and an answer.

The row's `id` names its prompt in the lake, so that equal rows with different ids stay apart. The
file is read twice: to its end before anything is written, then unit by unit.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from ....configs.schema import ConfigError
from ....critics.checks import require_deciders
from ....stores.journal_reader import Reader
from ....stores.keys import Json, canonical_json
from ....stores.records import Candidate, Prompt
from ...data.file_row import identity_field
from ...data.files import InputError, Row, RowError, file_digest, placed_rows
from ...data.prompt_rows import content_id
from ...data.rating_scale import SCALES, THREE_LEVEL
from ...data.row_fields import ANSWER_FIELDS, external_candidate, model_of
from . import ANSWERS
from .answer_rows import prompt_and_answer
from .imported_rows import UNKNOWN, Maker

ROW_ID = "id"


class OutsideAnswer(NamedTuple):
    """A row of the file: the prompt, and the answer."""

    prompt: Prompt
    candidate: Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswersFile:
    """A file of answers; `path` is its location, unless all of it is in the lake already."""

    sha256: str
    source: str
    task: str | None
    rows: int
    path: Path | None = None

    @property
    def facts(self) -> Json:
        """The properties that determine the rows in the lake."""
        return {
            "sha256": self.sha256,
            "source": self.source,
            "task": self.task,
            "rows": self.rows,
        }

    def as_json(self) -> str:
        """Return it as the journal keeps it."""
        return canonical_json(self.facts)

    def units(self, size: int) -> Iterator[list[OutsideAnswer]]:
        """Yield the answers, `size` at a time, in the order of the file.

        Raises:
            InputError: if the file is needed and is missing, or cannot be read.
        """
        if self.path is None:
            raise InputError(
                f"not all rows of {self.source} are in the lake: repeat the command that began "
                "this run"
            )
        if file_digest(self.path) != self.sha256:
            raise InputError(f"{self.path}: has changed while it was read; repeat the command")
        rows = (answer for _, answer in _answers(self.path, self.task))
        while unit := list(islice(rows, size)):
            yield unit


def answers_file(path: Path, task: str | None) -> AnswersFile:
    """Read a file to its end, and return its properties.

    Raises:
        InputError: if it cannot be used, naming the file, the place and the field.
    """
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: is not a plain file, and critiquing it reads it twice")
    sha256 = file_digest(path)
    places = dict[str, str]()
    for place, answer in _answers(path, task):
        identity = answer.prompt.prompt_id
        if identity in places:
            raise InputError(
                f"{path}, {place}: the {ROW_ID} {identity!r} is also used on {places[identity]}; "
                f"give each row its own {ROW_ID}, or none"
            )
        places[identity] = place
    if not places:
        raise InputError(f"{path}: holds no rows; write one JSON object a line")
    return AnswersFile(sha256=sha256, source=path.name, task=task, rows=len(places), path=path)


def stored_answers(journal: Reader) -> AnswersFile | None:
    """Return the answers that a run critiques, if it is such a run."""
    stored = journal.meta(ANSWERS)
    return None if stored is None else AnswersFile(**json.loads(stored))


def _answers(path: Path, task: str | None) -> Iterator[tuple[str, OutsideAnswer]]:
    make = Maker(source=path.name, scale=SCALES[THREE_LEVEL], task=task)
    for place, row in placed_rows(path):
        try:
            yield place, _answer(row, make, place)
        except (RowError, ConfigError) as error:
            raise InputError(f"{path}, {place}: {error}") from error


def _answer(row: Row, make: Maker, place: str) -> OutsideAnswer:
    """Return the answer of a row; a row without an id gets its place as id."""
    prompt, text = prompt_and_answer(row, make)
    if text is None:
        has = ", ".join(repr(name) for name in row)
        raise RowError(
            f"no answer; name its field one of {', '.join(ANSWER_FIELDS)} (the row has {has[:200]})"
        )
    require_deciders(prompt.checks)
    identity = identity_field(row, ROW_ID) or place.rpartition(" ")[2]
    model = model_of(row) or UNKNOWN
    content = content_id(prompt.messages, prompt.reference, prompt.checks, prompt.task)
    candidate = external_candidate(
        {"id": identity, "prompt": content, "model": model, "text": text},
        prompt_id=identity,
        text=text,
        source=make.source,
        model=model,
    )
    return OutsideAnswer(replace(prompt, prompt_id=identity), candidate)
