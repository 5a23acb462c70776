"""One id is one prompt: if files reuse an id for different contents, they are refused.

A prompt's id is its row's `prompt_id`. A row with `id` alone gets an id of its content, but its
author meant `id` to identify the row, so within a file the same rule applies to it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ...stores.records import Prompt
from .files import Row, RowError

Given = tuple[Path, str, int]
"""The file and place at which an id was first given, and a hash of its prompt."""
OF_RUN = "of the run"


@dataclass(slots=True)
class PromptIds:
    """The ids that rows have given so far, and optionally a run's."""

    _given: dict[str, Given] = field(default_factory=dict[str, Given], init=False)
    _labels: dict[str, Given] = field(default_factory=dict[str, Given], init=False)
    _of_run: dict[str, int] = field(default_factory=dict[str, int], init=False)
    _file: Path | None = field(default=None, init=False)
    _newest: list[tuple[dict[str, Given], str]] = field(
        default_factory=list[tuple[dict[str, Given], str]], init=False
    )
    _row: tuple[Path, str] | None = field(default=None, init=False)

    @classmethod
    def apart_from(cls, prompts: Iterable[Prompt]) -> "PromptIds":
        """Return ids that must not be given to other conversations than a run's prompts have."""
        ids = cls()
        ids._of_run = {prompt.prompt_id: hash(prompt.messages) for prompt in prompts}
        return ids

    def is_new(self, row: Row, prompt: Prompt, path: Path, place: str) -> bool:
        """Whether a row's prompt was not read before.

        Raises:
            RowError: if its id was given to another prompt.
        """
        if path != self._file:
            # Two data sets may both number their rows from 1; a `prompt_id` holds across files.
            self._labels.clear()
            self._file = path
        if self._row != (path, place):
            self._row = (path, place)
            self._newest.clear()
        # The same prompt may come from two sources.
        content = (prompt.messages, prompt.reference, prompt.checks, prompt.task, prompt.split)
        given = (path, place, hash(content))
        # Looked at and not kept, so it counts as a field that is not used.
        label = row.glance("id")
        if isinstance(label, str | int) and row.get("prompt_id") is None:
            self._is_first(self._labels, str(label), given)
        if self._of_run.get(prompt.prompt_id, hash(prompt.messages)) != hash(prompt.messages):
            raise _clash(prompt.prompt_id, OF_RUN)
        return self._is_first(self._given, prompt.prompt_id, given)

    def forget(self, path: Path, place: str) -> None:
        """Forget the ids that a row gave, if it was the last: it is left out."""
        if self._row == (path, place):
            for seen, identity in self._newest:
                del seen[identity]
            self._newest.clear()

    def _is_first(self, seen: dict[str, Given], identity: str, given: Given) -> bool:
        """Whether an id is given for the first time; later it must mean the same."""
        before = seen.setdefault(identity, given)
        if before[2] != given[2]:
            path, place, _ = before
            raise _clash(identity, f"on {place}" if path == given[0] else f"in {path}, {place}")
        if before is given:
            self._newest.append((seen, identity))
        return before is given


def _clash(identity: str, where: str) -> RowError:
    return RowError(
        f"the id {identity!r} belongs to another prompt {where}; give each prompt its own id, or "
        "none"
    )
