"""Reading an annotator's reply: a verdict on each pair, or the reason why there is none.

Every pair is read by itself, so one bad verdict leaves the others as they are. Nothing is guessed:
a pair whose verdict is missing, contradicted or not in the form asked for has none. Two kinds of
replies have no verdict at all, since it can not be told which pair is meant: those that repeat
lines of the prompt, and those whose numbers are shifted (counted from zero, say).
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ...stores.records import SCORED, FinishReason, Order, Preferred
from ..critique_reply import MAX_REPLY, refuses
from .comparison import Expected, Question
from .statements import Said, Status, lines, objects

__all__ = ["Status", "Verdict", "read"]

ECHO_LENGTH = 11
"""Shorter lines, in characters, can stand in prompt and reply by chance."""

TURNED: dict[Preferred, Preferred] = {"first": "second", "second": "first", "tie": "tie"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a reply says of the pair `key`; `status` is `scored`, or why `preferred` is None.

    `preferred` is about the outputs as given: the order in which they were shown is taken back.
    """

    key: str
    preferred: Preferred | None
    status: str
    explanation: str = ""


def read(question: Question, text: str, finish_reason: FinishReason) -> list[Verdict]:
    """Read the reply to `question`: one verdict for each of its pairs, in their order."""
    expected = question.expected
    status = _unread(text, finish_reason) or _echoed(question, text)
    if status is not None:
        return [_unscored(key, status) for key in expected.keys]
    cut = finish_reason == "length"
    whole = _complete(text, expected) if cut else text
    said = list(objects(whole, expected) if expected.form == "json" else lines(whole, expected))
    statements = defaultdict[int, list[Said]](list)
    for statement in said:
        statements[statement.number].append(statement)
    if _shifted(statements.keys(), len(expected.keys)):
        return [_unscored(key, Status.SHIFTED) for key in expected.keys]
    refused = not said and refuses(text)
    absent = Status.TRUNCATED if cut else Status.REFUSAL if refused else Status.MISSING
    verdicts = (
        _verdict(statements[number], key, order, absent)
        for number, (key, order) in enumerate(
            zip(expected.keys, expected.orders, strict=True), start=1
        )
    )
    return list(verdicts)


def _unread(text: str, finish_reason: FinishReason) -> Status | None:
    """Return the reason not to look for verdicts at all, if there is one."""
    if finish_reason == "overlong":
        return Status.OVERLONG
    if finish_reason == "failed":
        return Status.FAILED
    if len(text) > MAX_REPLY:
        return Status.TOO_LONG
    if not text.strip():
        return Status.TRUNCATED if finish_reason == "length" else Status.EMPTY
    return None


def _echoed(question: Question, text: str) -> Status | None:
    asked = {line.strip() for m in question.messages for line in m.content.splitlines()}
    repeated = asked & {line.strip() for line in text.splitlines()}
    return Status.ECHO if any(len(line) >= ECHO_LENGTH for line in repeated) else None


def _complete(text: str, expected: Expected) -> str:
    """Return what was surely finished at the token limit: whole lines, or the one token asked for.

    Objects show by themselves whether they are whole.
    """
    one_token = expected.form == "token" and not expected.several and "\n" not in text.strip()
    return text if one_token or expected.form == "json" else text[: text.rfind("\n") + 1]


def _shifted(numbers: Collection[int], count: int) -> bool:
    """Whether numbers are counted from another one than 1, so that none means its pair."""
    if 0 in numbers and count not in numbers:
        return True
    lowest, highest = min(numbers, default=1), max(numbers, default=1)
    return 1 < count == len(numbers) == highest - lowest + 1 and lowest != 1


def _verdict(said: Sequence[Said], key: str, order: Order, absent: Status) -> Verdict:
    choices: set[Preferred | Status] = {statement.choice for statement in said}
    if len(choices) > 1:
        return _unscored(key, Status.CONTRADICTORY)
    choice = choices.pop() if choices else absent
    if isinstance(choice, Status):
        cut_off = choice is Status.MALFORMED and absent is Status.TRUNCATED
        return _unscored(key, absent if cut_off else choice)
    preferred = choice if order == "as_given" else TURNED[choice]
    return Verdict(key=key, preferred=preferred, status=SCORED, explanation=said[-1].explanation)


def _unscored(key: str, status: Status) -> Verdict:
    return Verdict(key=key, preferred=None, status=status.value)
