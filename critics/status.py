"""The statuses of judgements, and the error of a reply that says nothing that counts."""

from enum import StrEnum

from ..stores.records import SCORED


class Status(StrEnum):
    """Why a subject has the value that was asked for (`scored`), or has none."""

    SCORED = SCORED
    """All that was asked for was read."""
    NOT_APPLICABLE = "not_applicable"
    """The judge says that the aspect does not apply here, where that is offered."""
    EMPTY = "empty"
    """The reply holds nothing but white space."""
    OVERLONG = "overlong"
    """The question did not fit into the judge's context, so nothing was asked."""
    FAILED = "failed"
    """The judge broke down on this one: an engine gave it up, a comparison lacked memory."""
    TRUNCATED_THINKING = "truncated_thinking"
    """What was to be judged was cut inside its thought, so nothing was asked."""
    TRUNCATED = "truncated"
    """The reply ended at the token limit before what counts, or may have; with no attempt, what was
    to be judged did, and nothing was asked."""
    TOO_LONG = "too_long"
    """The reply is longer than `MAX_REPLY`."""
    REFUSAL = "refusal"
    """The reply holds nothing that was asked for and opens as refusals do."""
    ECHO = "echo"
    """The reply repeats the question, or its verdict stands in a text that is judged."""
    UNMARKED = "unmarked"
    """The question was guarded, and the reply lacks the line below which a verdict counts."""
    MISSING = "missing"
    """The reply makes no statement on this subject."""
    MALFORMED = "malformed"
    """What is stated is not in the form that was asked for."""
    OUT_OF_RANGE = "out_of_range"
    """What is stated is none of the values that were offered."""
    NO_DICTIONARY = "no_dictionary"
    """The reply has no dictionary of ratings."""
    QUOTED = "quoted"
    """The statement stands inside a sentence, or is said to be somebody else's."""
    NEGATED = "negated"
    """The statement is what the judge says that it does not state."""
    DUPLICATE_KEYS = "duplicate_keys"
    """An aspect is rated twice."""
    WRONG_KEYS = "wrong_keys"
    """The keys are not the aspects that were asked for."""
    NOT_INTEGER = "not_integer"
    """A rating is a text, a fraction, a truth value or null, or is written with a plus sign."""
    NO_CLASS = "no_class"
    """The reply has ratings, but names no class of the taxonomy, or several."""
    SHIFTED = "shifted"
    """The numbers in the reply are not those of the pairs, but off by a constant."""
    NO_CHOICE = "no_choice"
    """The statement prefers neither, which was not offered."""
    CONTRADICTORY = "contradictory"
    """There are several statements on this subject, or several marks, and they differ."""
    DUPLICATE = "duplicate"
    """Something stands there twice: a completion's block, a field of it, the overall score."""
    WRONG_NUMBERS = "wrong_numbers"
    """The blocks are not those of all completions, in their order."""
    INCOMPLETE = "incomplete"
    """Part of a grade is absent: its rating, its rationale, its types, the critique in words."""
    NO_CHECK = "no_check"
    """The verifier has nothing to verify for this prompt."""
    NO_JUDGE = "no_judge"
    """The verifier does not judge facts, whose statements a judge compares with the reference."""
    NO_REFERENCE = "no_reference"
    """There is no reference that a statement could be compared with."""
    UNREADABLE = "unreadable"
    """The verifier finds no final answer in the reference."""
    TIMEOUT = "timeout"
    """The verifier's comparison took too long."""
    TOO_LARGE = "too_large"
    """The answer's formula is larger than any that the verifier compares."""


WAS_READ = frozenset({Status.SCORED.value, Status.NOT_APPLICABLE.value})
"""The statuses of what need not be asked again."""


class UnreadError(ValueError):
    """A reply, or a part of it, says nothing that counts."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.value)
        self.status = status
