"""Notes on the rows of files: the ids that they give, unused fields, skipped rows.

One id is one prompt: if files reuse an id for different contents, they are refused. A prompt's id
is its row's `prompt_id`. A row with `id` alone gets an id of its content, but its author meant `id`
to identify the row, so within a file the same rule applies to it.

One row that cannot be read refuses its file. If the user allows skipping, it is skipped with a
filter count that has its place and the error.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...stores.keys import Json
from ...stores.records import FilterCount, Prompt
from .file_row import Row, RowError
from .filter_counts import KEPT, filter_counts
from .pairs import Unfit
from .text_lines import InputError, refuse

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


BAD_SHARE = 0.5
"""The default of the largest share of a file's rows that may be skipped."""

FILTER, UNREADABLE = "unreadable-rows", "unreadable"
UNFIT_PAIRS = "unfit-pairs"
"""The filter that counts pairs that cannot be trained on."""
NAMED = 12
"""The number of unused fields that a sentence lists."""
FIRST = 3
"""The number of skipped rows that a sentence lists."""


@dataclass(kw_only=True)
class RowNotes:
    """The fields that no reader took, and the skipped rows, in the order of the files.

    `rows` were read, of which `unused` counts the fields. `unfit` has the places of rows whose
    pairs cannot be trained on, by reason. With `skips`, bad rows are skipped; `remedy` names the
    option for it.
    """

    skips: bool = False
    remedy: str = ""
    rows: int = 0
    unused: Counter[str] = field(default_factory=Counter[str])
    skipped: list[str] = field(default_factory=list[str])
    unfit: dict[Unfit, list[str]] = field(default_factory=dict[Unfit, list[str]])
    _told: int = field(default=0, init=False)
    _unfit_counted: Counter[str] = field(default_factory=Counter[str], init=False)

    @property
    def seen(self) -> int:
        """How many rows there were, read or left out."""
        return self.rows + len(self.skipped) + sum(map(len, self.unfit.values()))

    def read(self, row: Row) -> None:
        """Note a row that was read."""
        self.rows += 1
        self.unused.update(set(row.unused_fields()))

    def bad(self, path: Path, place: str, error: RowError) -> None:
        """Leave a row out, or refuse its file.

        Raises:
            InputError: if rows may not be left out.
        """
        if not self.skips:
            refuse(path, place, RowError(f"{error}{self.remedy}"))
        self.skipped.append(f"{path.name}, {place}: {error}")

    def leave_out(self, path: Path, place: str, reason: Unfit) -> None:
        """Leave out a row whose pair cannot be trained on."""
        self.unfit.setdefault(reason, []).append(f"{path.name}, {place}")

    def add(self, other: "RowNotes") -> None:
        """Add the notes on another file."""
        self.rows += other.rows
        self.unused.update(other.unused)
        self.skipped += other.skipped

    def require_few(self, share: float, bound: str) -> None:
        """Refuse files of whose rows too many were left out; `bound` names the setting.

        Raises:
            InputError: naming the first of them.
        """
        if len(self.skipped) > share * self.seen:
            raise InputError(
                f"{len(self.skipped):,} of {self.seen:,} rows cannot be read, more than the "
                f"{share:g} that {bound} allows; the first: {self.skipped[0]}"
            )

    def new_filter_counts(self, kept: int) -> list[FilterCount]:
        """Return the counts of each row skipped since the last call, and of the kept rows.

        The list is empty if rows may not be skipped.
        """
        new, self._told = self.skipped[self._told :], len(self.skipped)
        if not self.skips:
            return []
        out = [_filter_count(UNREADABLE, 1, (sentence,)) for sentence in new]
        return [_filter_count(KEPT, kept, ()), *out]

    def new_unfit(self, kept: Sequence[str]) -> list[FilterCount]:
        """Return the counts of pairs left out since the last call, and of the pairs `kept`."""
        new = {why: rows[self._unfit_counted[why] :] for why, rows in self.unfit.items()}
        self._unfit_counted = Counter({why: len(rows) for why, rows in self.unfit.items()})
        fates: dict[str, Sequence[str]] = {why: rows for why, rows in new.items() if rows}
        return filter_counts(0, UNFIT_PAIRS, "pairs", {KEPT: kept, **fates})

    def as_json(self) -> dict[str, Json]:
        """Return the report as a JSON document."""
        return {
            "unused": {"rows": self.rows, "fields": dict(self.unused.most_common())},
            "skipped": {"rows": len(self.skipped), "first": list(self.skipped[:FIRST])},
            "unfit_pairs": {reason: len(rows) for reason, rows in self.unfit.items()},
        }

    def sentences(self) -> Iterator[str]:
        """Yield the report in sentences: unused fields, unreadable rows, unfit pairs."""
        if self.unused:
            fields = [f"{name} ({n:,})" for name, n in self.unused.most_common()]
            yield f"fields not used, of {self.rows:,} rows: {_list_first(fields, NAMED)}"
        if self.skipped:
            first = _list_first(self.skipped, FIRST)
            yield f"rows left out as unreadable: {len(self.skipped):,}: {first}"
        if self.unfit:
            reasons = (f"{len(r):,} {why} ({r[0]})" for why, r in sorted(self.unfit.items()))
            yield f"pairs left out: {', '.join(reasons)}"


def _list_first(items: Sequence[str], most: int) -> str:
    """Return the first items, and how many more there are."""
    rest = len(items) - most
    return "; ".join([*items[:most], *([f"and {rest:,} more"] if rest > 0 else [])])


def _filter_count(outcome: str, count: int, examples: tuple[str, ...]) -> FilterCount:
    return FilterCount(
        iteration=0, filter=FILTER, items="rows", outcome=outcome, count=count, examples=examples
    )
