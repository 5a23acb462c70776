"""People's preferences, as pairs of whole conversations that a reward model can score.

A pair that several people judged is decided by their majority.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...stores.records import Message, Preferred
from ..data.files import InputError
from .judgment_sources import PEOPLE, JudgmentReading, file_judgments
from .judgments import TURNED

Conversation = tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenPair:
    """Two conversations, of which people prefer `better` to `worse`, and their task type."""

    better: Conversation
    worse: Conversation
    task: str | None

    @property
    def instruction(self) -> str:
        """The user's first message: pairs that share it are not independent."""
        return self.better[0].content


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """People's choices, and the number of undecided pairs: ties, and split votes."""

    choices: tuple[ChosenPair, ...]
    tied: int


def read_preferences(paths: Sequence[Path], reading: JudgmentReading) -> Preferences:
    """Read files of preferences; votes on one pair in several files are pooled.

    The task type is in the field `reading.by`; by default it is one for each file.

    Raises:
        InputError: for a file or row that cannot be read, or if people decided nothing.
    """
    votes: dict[tuple[Conversation, Conversation], Counter[Preferred]] = {}
    tasks: dict[tuple[Conversation, Conversation], str | None] = {}
    for path in paths:
        for judgment in file_judgments(path, reading):
            if (
                not judgment.human
                or judgment.preferred is None
                or judgment.first.key == judgment.second.key
            ):
                continue
            first, second = (
                (*judgment.messages, Message(role="assistant", content=side.text or ""))
                for side in (judgment.first, judgment.second)
            )
            turned = judgment.first.key > judgment.second.key
            pair = (second, first) if turned else (first, second)
            tasks.setdefault(pair, path.stem if reading.by is None else judgment.task)
            preferred = TURNED[judgment.preferred] if turned else judgment.preferred
            votes.setdefault(pair, Counter())[preferred] += 1
    names = ", ".join(map(str, paths))
    if reading.by is not None and votes and not any(tasks.values()):
        raise InputError(f"{names}: no judgment of a person has the field {reading.by!r} of --by")
    decided = [_majority(pair, given, tasks[pair]) for pair, given in votes.items()]
    choices = tuple(choice for choice in decided if choice is not None)
    if not choices:
        raise InputError(
            f"{names}: no person prefers one answer to another; people are annotators whose names "
            f"begin with {', '.join((*PEOPLE, *reading.human))} (--human adds others)"
        )
    return Preferences(choices=choices, tied=len(decided) - len(choices))


def _majority(
    pair: tuple[Conversation, Conversation], votes: Counter[Preferred], task: str | None
) -> ChosenPair | None:
    """Return the choice of most people; None if that is a tie, or no verdict leads."""
    most = max(votes.values())
    leading = [preferred for preferred, count in votes.items() if count == most]
    if len(leading) > 1 or leading == ["tie"]:
        return None
    first, second = pair
    better, worse = (first, second) if leading == ["first"] else (second, first)
    return ChosenPair(better=better, worse=worse, task=task)
