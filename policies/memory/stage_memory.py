"""The memory that a stage of a run needs of a device, as a list of terms, and whether it fits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

GIB = 2**30
MARGIN = 0.1
"""The share of a device that must stay free, and by which the arithmetic may be wrong.

Measured trainings were within 5 %, without the fragments that an allocator cannot use: a training
for which 135 of 140 GiB were computed ran out of memory.
"""

NO_SETTING = "no setting makes it small enough: use a smaller model or larger devices"

Verdict = Literal["fits", "may not fit", "does not fit", "not known"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """Bytes that a stage needs at its peak: for any texts, and for the longest that may come."""

    name: str
    least_bytes: int
    most_bytes: int


def fixed(name: str, size: float) -> Term:
    """Return a term that does not depend on the texts."""
    return Term(name=name, least_bytes=round(size), most_bytes=round(size))


def at_most(name: str, size: float) -> Term:
    """Return a term that reaches its size only for the longest texts."""
    return Term(name=name, least_bytes=0, most_bytes=round(size))


def summed(name: str, terms: Sequence[Term]) -> Term:
    """Return one term for the sum of several."""
    least = sum(term.least_bytes for term in terms)
    return Term(name=name, least_bytes=least, most_bytes=sum(term.most_bytes for term in terms))


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """Settings that make a stage smaller, the bytes that they save, and the verdict with them."""

    settings: tuple[str, ...]
    saved_bytes: int
    verdict: Verdict

    def as_text(self) -> str:
        """Return the options to set, and the bytes that they save."""
        options = " ".join(f"--set {setting}" for setting in self.settings)
        then = ", then it fits" if self.verdict == "fits" else ""
        return f"{options} (-{gib(self.saved_bytes)} GiB{then})"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """A stage's terms on one device; `unknown` is the reason why they cannot be computed.

    `has_bytes` is the memory that the stage may use: the device's, or the share that a setting
    gives it. `note` is printed after the terms. `sections` are the parts of the configuration that
    change the stage. `context` is an engine's, in tokens, and `fitting` the longest that fits.
    """

    stage: str
    device: str
    has_bytes: int
    terms: tuple[Term, ...] = ()
    unknown: str = ""
    note: str = ""
    sections: tuple[str, ...] = ()
    context: int = 0
    fitting: int = 0
    remedies: tuple[Remedy, ...] = ()

    @property
    def least_bytes(self) -> int:
        """The bytes that the stage needs for any texts."""
        return sum(term.least_bytes for term in self.terms)

    @property
    def most_bytes(self) -> int:
        """The bytes that the stage needs if texts are as long as the settings allow."""
        return sum(term.most_bytes for term in self.terms)

    @property
    def verdict(self) -> Verdict:
        """Whether the stage fits with a margin; "may not fit" if texts or margin decide."""
        if self.unknown:
            return "not known"
        if self.least_bytes * (1 - MARGIN) > self.has_bytes:
            return "does not fit"
        return "fits" if self.most_bytes <= self.has_bytes * (1 - MARGIN) else "may not fit"

    @property
    def is_tight(self) -> bool:
        """Whether the stage may not fit, or does not."""
        return self.verdict in ("may not fit", "does not fit")

    def as_text(self) -> str:
        """Return the terms, their sum and the device's memory in one line."""
        if self.unknown:
            return self.unknown
        terms = " + ".join(f"{t.name} {gib(t.most_bytes)}" for t in self.terms if t.most_bytes)
        note = f"; {self.note}" if self.note else ""
        return (
            f"{terms} = {gib(self.most_bytes)} of {gib(self.has_bytes)} GiB ({self.device}){note}"
        )

    def advice(self) -> str:
        """Return the settings that help, first the ones with which the stage fits."""
        helps = " or ".join(remedy.as_text() for remedy in self.remedies)
        advice = [f"what helps: {helps}"] if helps else []
        possible = any(remedy.verdict in ("fits", "may not fit") for remedy in self.remedies)
        if self.verdict == "does not fit" and not possible:
            advice.append(NO_SETTING)
        return "; ".join(advice)


def gib(size: int) -> str:
    """Return a size in GiB with three digits."""
    return f"{size / GIB:.3g}"
