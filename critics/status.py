"""The statuses of judgements, the error of an unreadable reply, and the verifier's metrics."""

from enum import StrEnum

from ..stores.records import SCORED


class Status(StrEnum):
    """Why a subject has the requested value (`scored`), or lacks it."""

    SCORED = SCORED
    """Everything requested was read."""
    NOT_APPLICABLE = "not_applicable"
    """The judge replies that the aspect does not apply here, if that is offered."""
    EMPTY = "empty"
    """The reply holds nothing but white space."""
    OVERLONG = "overlong"
    """The question did not fit into the judge's context, so it was not sent."""
    FAILED = "failed"
    """The judge broke down on this one: an engine gave it up, a comparison lacked memory."""
    TRUNCATED_THINKING = "truncated_thinking"
    """The subject was cut inside its thought, so the question was not sent."""
    TRUNCATED = "truncated"
    """The reply ended at the token limit before the verdict, or may have.

    With no attempt, the subject was cut so, and the question was not sent.
    """
    TOO_LONG = "too_long"
    """The reply is longer than `MAX_REPLY`."""
    REFUSAL = "refusal"
    """The reply lacks the requested content and opens like a refusal."""
    ECHO = "echo"
    """The reply repeats the question, or its verdict is in a judged text."""
    UNMARKED = "unmarked"
    """The question was guarded, and the reply lacks the line below which a verdict counts."""
    MISSING = "missing"
    """The reply lacks a statement on this subject."""
    MALFORMED = "malformed"
    """The statement is not in the requested form."""
    OUT_OF_RANGE = "out_of_range"
    """The statement is not one of the offered values."""
    NO_DICTIONARY = "no_dictionary"
    """The reply lacks a dictionary of ratings."""
    QUOTED = "quoted"
    """The statement is inside a sentence, or attributed to somebody else."""
    NEGATED = "negated"
    """The judge denies the statement."""
    DUPLICATE_KEYS = "duplicate_keys"
    """An aspect is rated twice."""
    WRONG_KEYS = "wrong_keys"
    """The keys are not the requested aspects."""
    NOT_INTEGER = "not_integer"
    """A rating is a text, a fraction, a truth value or null, or is written with a plus sign."""
    NO_CLASS = "no_class"
    """The reply has ratings, but names no class of the taxonomy, or several."""
    SHIFTED = "shifted"
    """The numbers in the reply are the pairs' numbers shifted by a constant."""
    NO_CHOICE = "no_choice"
    """The statement prefers neither, which was not offered."""
    CONTRADICTORY = "contradictory"
    """There are several statements on this subject, or several marks, and they differ."""
    DUPLICATE = "duplicate"
    """A part is repeated: a completion's block, a field of it, the overall score."""
    WRONG_NUMBERS = "wrong_numbers"
    """The blocks do not match the completions, in their order."""
    INCOMPLETE = "incomplete"
    """Part of a grade is absent: its rating, its rationale, its types, the critique in words."""
    NO_CHECK = "no_check"
    """The verifier cannot verify answers to this prompt."""
    NO_JUDGE = "no_judge"
    """The verifier does not judge facts, whose statements a judge compares with the reference."""
    NO_REFERENCE = "no_reference"
    """No reference is available for comparison with a statement."""
    UNREADABLE = "unreadable"
    """The verifier finds no final answer in the reference."""
    TIMEOUT = "timeout"
    """The verifier's comparison took too long."""
    TOO_LARGE = "too_large"
    """The answer's formula is larger than any that the verifier compares."""


WAS_READ = frozenset({Status.SCORED.value, Status.NOT_APPLICABLE.value})
"""The statuses that are final: these judgements are never retried."""


MATH_ACCURACY, MATH_UNDECIDED, MATH_UNMARKED = "math_accuracy", "math_undecided", "math_unmarked"
"""The metrics of an answer to a math prompt."""


class UnreadError(ValueError):
    """A reply, or a part of it, lacks a usable verdict."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.value)
        self.status = status
