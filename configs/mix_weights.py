"""How often a training learns each kind of rows of a mix."""

from pydantic import model_validator

from .section import Section, semantic


class LessonWeights(Section):
    """How often M_0 learns each lesson of a kind: 0.5 is half of them, drawn; 2 is each twice."""

    answer: float = semantic(1.0, "x to y: demonstrations", ge=0)
    reflection: float = semantic(1.0, "(x, y, f) to a better y", ge=0)
    critique: float = semantic(1.0, "(x, y) to f", ge=0)
    critique_with_reference: float = semantic(1.0, "(x, y, reference) to f", ge=0)

    @model_validator(mode="after")
    def _something(self) -> "LessonWeights":
        if not any(dict(self).values()):
            raise ValueError("all weights are 0, so there is nothing to learn: raise one of them")
        return self


class PairWeights(Section):
    """How often a reward model learns each pair of a kind: 0.5 is half of them, 2 each twice."""

    preferred: float = semantic(1.0, "pairs that people or annotators preferred", ge=0)
    verified: float = semantic(1.0, "right answers against wrong ones, by the verifier", ge=0)

    @model_validator(mode="after")
    def _something(self) -> "PairWeights":
        if not any(dict(self).values()):
            raise ValueError("all weights are 0, so there is nothing to learn: raise one of them")
        return self
