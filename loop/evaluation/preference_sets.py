"""People's preferences, as pairs of whole conversations that a reward model can score.

The formats are the same as for `judge-check` (AlpacaFarm, AlpacaEval, PandaLM, MT-bench with its
conversations, LLMBar's pairs), and pairs of `chosen` and `rejected`, as in binarised UltraFeedback.
A pair that several people judged is decided by their majority.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

from ...stores.records import Message, Pair, Preferred
from ..data.conversations import conversation
from ..data.field_names import in_known_case
from ..data.file_row import UnusedFields
from ..data.files import InputError, Row, RowError, placed_rows
from ..data.rating_scale import SCALES, THREE_LEVEL
from ..data.row_fields import vote_of
from ..data.row_notes import tell_unused
from ..data.row_texts import shown, text_of
from ..lake.imports.imported_rows import Maker
from ..lake.imports.pair_forms import pairs
from . import judgment_formats as formats
from .judgments import TURNED, Judgment, OutputPair

Conversation = tuple[Message, ...]
SIDES = ("chosen", "rejected")


class Vote(NamedTuple):
    """A person's verdict on two conversations."""

    first: Conversation
    second: Conversation
    preferred: Preferred


Reader = Callable[[Row, formats.JudgmentSource], Iterator[Vote]]
"""Yields people's votes of a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenPair:
    """Two conversations, of which people prefer `better` to `worse`, and their task type."""

    better: Conversation
    worse: Conversation
    task: str

    @property
    def instruction(self) -> str:
        """The user's first message: pairs that share it are not independent."""
        return self.better[0].content


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """People's choices, and the number of undecided pairs: ties, and split votes."""

    choices: tuple[ChosenPair, ...]
    tied: int


def read_preferences(
    paths: Sequence[Path], people: tuple[str, ...], *, by: str | None = None
) -> Preferences:
    """Read files of preferences; votes on one pair in several files are pooled.

    Args:
        paths: The files.
        people: The prefixes of people's names; verdicts of others are ignored.
        by: The field that names the task type; default: one for each file.

    Raises:
        InputError: for a file or row that cannot be read, or if people decided nothing.
    """
    votes: dict[tuple[Conversation, Conversation], Counter[Preferred]] = {}
    tasks: dict[tuple[Conversation, Conversation], str] = {}
    for path in paths:
        for task, vote in _of_file(path, people, by):
            pair, preferred = _in_order(vote)
            tasks.setdefault(pair, task)
            votes.setdefault(pair, Counter())[preferred] += 1
    decided = [_majority(pair, given, tasks[pair]) for pair, given in votes.items()]
    choices = tuple(choice for choice in decided if choice is not None)
    if not choices:
        names = ", ".join(map(str, paths))
        raise InputError(
            f"{names}: no person prefers one answer to another; people are annotators whose names "
            f"begin with {', '.join(people)} (--human adds others)"
        )
    return Preferences(choices=choices, tied=len(decided) - len(choices))


def _of_file(path: Path, people: tuple[str, ...], by: str | None) -> Iterator[tuple[str, Vote]]:
    """Yield the votes of a file on different answers, each with its task type."""
    read: Reader | None = None
    unused = UnusedFields()
    for place_of, (place, row) in enumerate(placed_rows(path)):
        source = formats.JudgmentSource(path=path, number=place_of, people=people)
        try:
            read = read or _reader(row)
            task = path.stem if by is None else text_of(row.get(by), by)
            for vote in read(row, source):
                if vote.first != vote.second:
                    yield task, vote
        except RowError as error:
            raise InputError(f"{path}, {place}: {error}") from error
        unused.add(row)
    tell_unused(path, unused)


def _reader(row: Row) -> Reader:
    """Return the reader for a file, by its first row.

    Raises:
        RowError: if the row is in no known format.
    """
    if set(SIDES) <= set(in_known_case(row)):
        return _chosen
    try:
        form = formats.format_of(row)
    except RowError as error:
        raise RowError(f"{error}, nor are they {' and '.join(SIDES)}") from error
    return partial(_READERS.get(form.read, _without_texts), form)


def _chosen(row: Row, source: formats.JudgmentSource) -> Iterator[Vote]:
    """Read a chosen and a rejected answer; equal scores mean a tie."""
    make = Maker(source=source.path.name, scale=SCALES[THREE_LEVEL], task=None)
    for made in pairs(in_known_case(row), make):
        if isinstance(made, Pair):
            chosen, rejected = ((*made.prompt, *side) for side in (made.chosen, made.rejected))
            tie = made.chosen_reward is not None and made.chosen_reward == made.rejected_reward
            yield Vote(chosen, rejected, "tie" if tie else "first")


def _judged(
    form: formats.JudgmentFormat, row: Row, source: formats.JudgmentSource
) -> Iterator[Vote]:
    """Read people's votes on two outputs to an instruction."""
    for said, preferred in _of_people(form, row, source):
        asked = _asked(said.instruction)
        first, second = ((*asked, *_answered(o.text or "")) for o in (said.first, said.second))
        yield Vote(first, second, preferred)


def _mt_bench(
    form: formats.JudgmentFormat, row: Row, source: formats.JudgmentSource
) -> Iterator[Vote]:
    """Read MT-bench's conversations up to the turn that was judged."""
    for _, preferred in _of_people(form, row, source):
        first, second = (_until(row, f"conversation_{side}", row.get("turn", 1)) for side in "ab")
        yield Vote(first, second, preferred)


def _of_people(
    form: formats.JudgmentFormat, row: Row, source: formats.JudgmentSource
) -> Iterator[tuple[OutputPair, Preferred]]:
    """Yield the pairs of a row that people judged, with their verdicts."""
    for item in formats.read_row(form, row, source):
        if isinstance(item, Judgment) and item.human and item.preferred is not None:
            yield item.pair, item.preferred


def _until(row: Row, name: str, turn: object) -> Conversation:
    value = row.get(name)
    if not isinstance(value, list) or not isinstance(turn, int):
        raise RowError(
            f"{name!r} must be the conversation that was judged: a reward model reads texts; "
            "MT-bench's published judgments hold them"
        )
    messages = conversation(cast("list[object]", value), name)
    ends = [n for n, message in enumerate(messages, start=1) if message.role == "assistant"]
    if not 0 < turn <= len(ends):
        raise RowError(f"{name!r} lacks an answer in turn {turn}")
    return messages[: ends[turn - 1]]


def _llmbar(
    form: formats.JudgmentFormat, row: Row, source: formats.JudgmentSource
) -> Iterator[Vote]:
    """Read LLMBar's pairs, whose labels are people's."""
    for item in formats.read_row(form, row, source):
        preferred = vote_of(row["label"])
        if preferred is None:
            raise RowError(f"'label' must be 1 or 2, but is {shown(row['label'])}")
        if isinstance(item, OutputPair):
            asked = _asked(text_of(row["input"], "input"))
            sides = (item.first, item.second)
            first, second = ((*asked, *_answered(output.text or "")) for output in sides)
            yield Vote(first, second, preferred)


def _without_texts(
    _form: formats.JudgmentFormat, _row: Row, _source: formats.JudgmentSource
) -> Iterator[Vote]:
    raise RowError("these verdicts come without the texts that a reward model reads")


_READERS: Mapping[
    formats.Read, Callable[[formats.JudgmentFormat, Row, formats.JudgmentSource], Iterator[Vote]]
] = {
    formats.alpaca: _judged,
    formats.pandalm: _judged,
    formats.mt_bench: _mt_bench,
    formats.llmbar_pairs: _llmbar,
}


def _asked(text: str) -> Conversation:
    return (Message(role="user", content=text),)


def _answered(text: str) -> Conversation:
    return (Message(role="assistant", content=text),)


def _in_order(vote: Vote) -> tuple[tuple[Conversation, Conversation], Preferred]:
    """Return the pair with its sides in a fixed order, whichever came first."""
    first, second = vote.first, vote.second
    if [(m.role, m.content) for m in first] <= [(m.role, m.content) for m in second]:
        return (first, second), vote.preferred
    return (second, first), TURNED[vote.preferred]


def _majority(
    pair: tuple[Conversation, Conversation], votes: Counter[Preferred], task: str
) -> ChosenPair | None:
    """Return the choice of most people; None if that is a tie, or no verdict leads."""
    most = max(votes.values())
    leading = [preferred for preferred, count in votes.items() if count == most]
    if len(leading) > 1 or leading == ["tie"]:
        return None
    first, second = pair
    better, worse = (first, second) if leading == ["first"] else (second, first)
    return ChosenPair(better=better, worse=worse, task=task)
