"""The critic: who judges in the loop, how it is asked, and how often."""

from typing import Literal, Self

from pydantic import model_validator

from .engines import NO_MODEL, EngineConfig, SamplingConfig
from .section import Place, Section, cosmetic, semantic

CriticKind = Literal["feedback", "verifier", "both"]


class CriticConfig(Section):
    """The feedback model f, its templates, and how its replies are read (Section 3.1)."""

    model: Place = semantic(
        NO_MODEL,
        "'tiny', a folder, or an OpenAI-compatible URL; named where a recipe asks a critic, and "
        "where held-out answers shall be rated",
    )
    engine: EngineConfig = EngineConfig()
    sampling: SamplingConfig = SamplingConfig(temperature=0.0, max_tokens=512)
    kind: CriticKind = semantic("feedback", "who judges in the loop")
    verifier: Place | None = semantic(
        None, "your own function that rates, as ./FILE.py:NAME; default: the shipped verifier"
    )
    most_timeouts: float = cosmetic(
        0.2,
        "the share of answers to math, of 50 or more, whose comparison may take too long before "
        "the run stops",
        ge=0,
        le=1,
    )
    templates: str = semantic("paper", "name of a shipped set of templates, or a folder")
    aspects: str = semantic("paper", "name of a shipped aspects file, or a YAML file")
    task_aspects: dict[str, str] = semantic(
        {"math": "Logical Correctness", "facts": "Factuality"},
        "tasks judged on one fixed aspect; for others the critic chooses three",
    )
    use_reference: bool = semantic(
        default=True, description="show the reference answer, if there is one, to the critic"
    )
    equal_answers: Literal["once", "each"] = semantic(
        "once",
        "answers to a prompt that say the same, white space aside, share a critique, or each has "
        "its own",
    )
    attempts: int = semantic(
        2, "attempts to read a reply before a candidate stays unscored", ge=1, le=10
    )
    samples: int = semantic(
        1, "critiques of each candidate to train on; held-out answers have one", ge=1, le=32
    )

    @model_validator(mode="after")
    def _several_by_a_model(self) -> Self:
        if self.samples > 1 and self.kind == "verifier":
            raise ValueError(
                "samples: the verifier says the same each time, so more than one of its verdicts "
                "is no use; leave samples out, or set kind to feedback or both"
            )
        return self
