"""What a stage needs of a device beside what the device has, and what that means."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

GIB = 2**30
UNCERTAINTY = 0.15
"""The share by which the arithmetic may be off: a stage is refused only beyond it."""

Verdict = Literal["fits", "may not fit", "does not fit", "not known"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """A part of what a stage holds at its peak, in bytes.

    `least_bytes` are taken whatever the texts are, `most_bytes` if they are as long as the settings
    allow.
    """

    name: str
    least_bytes: int
    most_bytes: int


def fixed(name: str, size: float) -> Holding:
    """Return a part that does not depend on the texts."""
    return Holding(name=name, least_bytes=round(size), most_bytes=round(size))


def at_most(name: str, size: float) -> Holding:
    """Return a part that is as large only for the longest texts."""
    return Holding(name=name, least_bytes=0, most_bytes=round(size))


@dataclass(frozen=True, slots=True, kw_only=True)
class Relief:
    """Settings that would make a stage smaller, the bytes that they save, and what comes of it."""

    settings: tuple[str, ...]
    saved_bytes: int
    verdict: Verdict

    def as_text(self) -> str:
        """Return the options to give, and what they do."""
        options = " ".join(f"--set {setting}" for setting in self.settings)
        then = ", then it fits" if self.verdict == "fits" else ""
        return f"{options} (-{gib(self.saved_bytes)} GiB{then})"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """A stage's peak on one device; `unknown` says why there is no arithmetic.

    `has_bytes` is what the stage may use: the device's memory, or the share that a setting leaves.
    `told` is what else the sizes say, as how many requests fit at once. `sections` are the parts
    of the configuration that it depends on; `context` is an engine's, in tokens, and `fitting` the
    longest that would fit.
    """

    stage: str
    device: str
    has_bytes: int
    parts: tuple[Holding, ...] = ()
    unknown: str = ""
    told: str = ""
    sections: tuple[str, ...] = ()
    context: int = 0
    fitting: int = 0
    reliefs: tuple[Relief, ...] = ()

    @property
    def least_bytes(self) -> int:
        """What the stage takes whatever the texts are."""
        return sum(part.least_bytes for part in self.parts)

    @property
    def most_bytes(self) -> int:
        """What the stage takes if texts are as long as the settings allow."""
        return sum(part.most_bytes for part in self.parts)

    @property
    def verdict(self) -> Verdict:
        """Whether the stage fits, for all that the arithmetic can tell."""
        if self.unknown:
            return "not known"
        if self.least_bytes * (1 - UNCERTAINTY) > self.has_bytes:
            return "does not fit"
        return "fits" if self.most_bytes * (1 + UNCERTAINTY) <= self.has_bytes else "may not fit"

    def as_text(self) -> str:
        """Return the parts, their sum and what the device has, in one line."""
        if self.unknown:
            return self.unknown
        parts = " + ".join(f"{p.name} {gib(p.most_bytes)}" for p in self.parts if p.most_bytes)
        also = f"; {self.told}" if self.told else ""
        return (
            f"{parts} = {gib(self.most_bytes)} of {gib(self.has_bytes)} GiB ({self.device}){also}"
        )

    def advice(self) -> str:
        """Return what would help, if it may not fit.

        First what makes it fit, the least change before the others.
        """
        helps = " or ".join(relief.as_text() for relief in self.reliefs)
        said = [f"what helps: {helps}"] if helps else []
        if self.verdict == "does not fit" and not any(map(self._is_enough, self.reliefs)):
            said.append(NO_SETTING)
        return "; ".join(said)

    @staticmethod
    def _is_enough(relief: Relief) -> bool:
        return relief.verdict in ("fits", "may not fit")


NO_SETTING = "no setting makes it small enough: take a smaller model or larger devices"


def gib(size: int) -> str:
    """Return a size in GiB with three digits."""
    return f"{size / GIB:.3g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """The stages of a run, in their order."""

    stages: tuple[StageMemory, ...]

    def lines(self) -> Iterator[str]:
        """Yield a line for each stage, and one for what would help where it may not fit."""
        for stage in self.stages:
            yield f"{stage.stage}: {stage.verdict}: {stage.as_text()}"
            if stage.verdict in ("may not fit", "does not fit"):
                yield f"  {stage.advice()}"

    def of(self, verdict: Verdict) -> Sequence[StageMemory]:
        """Return the stages with a verdict."""
        return [stage for stage in self.stages if stage.verdict == verdict]
