"""The judges of answers, and their prompts: critic, grader, and judge of facts."""

from typing import Literal, Self

from pydantic import model_validator

from .engines import NO_MODEL, EngineConfig, SamplingConfig
from .section import Place, Section, cosmetic, semantic

CriticKind = Literal["feedback", "verifier", "both"]


class CriticConfig(Section):
    """The feedback model f, its templates, and how its replies are read (Section 3.1)."""

    model: Place = semantic(
        NO_MODEL,
        "'tiny', a folder, or an OpenAI-compatible URL; needed by recipes with a critic, and for "
        "ratings of held-out answers",
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
    def _check_samples(self) -> Self:
        if self.samples > 1 and self.kind == "verifier":
            raise ValueError(
                "samples: the verifier gives the same verdict each time; leave samples out, or "
                "set kind to feedback or both"
            )
        return self


class GradingConfig(Section):
    """The model that grades and critiques completions, and its settings."""

    model: Place | None = semantic(None, "folder or OpenAI-compatible URL; default: the critic's")
    engine: EngineConfig = EngineConfig()
    sampling: SamplingConfig = SamplingConfig(temperature=0.0, top_p=0.6, max_tokens=1024)
    templates: str = semantic("ultrafeedback", "name of a shipped set of templates, or a folder")
    use_reference: bool = semantic(
        default=True, description="show the reference answer, if there is one, as world knowledge"
    )
    equal_answers: Literal["once", "each"] = semantic(
        "once",
        "answers to a prompt that say the same, white space aside, are shown once, or each",
    )
    cut_answers: Literal["unscored", "graded"] = semantic(
        "unscored", "unscored: answers cut at max_tokens get no grade; they make no pair"
    )
    attempts: int = semantic(
        3, "attempts to read a reply before completions stay unscored", ge=1, le=10
    )


class FactsConfig(Section):
    """An answer's statements, judged one by one against the reference (Min et al., 2023)."""

    judge: Literal["critic", "sentence_match", "none"] = semantic(
        "critic",
        "who judges an answer's statements: critic, sentence_match (equal sentences; the tiny "
        "world's prompts alone) or none; a run without a critic uses none",
    )
    most: int = semantic(200, "statements of an answer that are judged; later ones are not", ge=1)
    together: int = semantic(1, "statements in one question to the critic", ge=1, le=50)
    templates: str = semantic("factscore", "name of a shipped set of templates, or a folder")
