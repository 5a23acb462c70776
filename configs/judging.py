"""The judges of answers, critic, grader and judge of facts; and the filters of prompts and pairs.

The filters drop prompts, comparisons and pairs before they cost anything (ChatGLM-RLHF).
"""

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


class RuleFilters(Section):
    """Prompts that a rule can refuse without a model (ChatGLM-RLHF, Section 3.2)."""

    min_chars: int | None = semantic(None, "shorter prompts are dropped", ge=1)
    max_chars: int | None = semantic(None, "longer prompts are dropped", ge=1)
    duplicates: bool = semantic(
        default=False, description="drop prompts that repeat an earlier one"
    )
    scripts: tuple[str, ...] = semantic(
        (), "scripts a prompt may be written in, such as latin, han; default: any"
    )
    benchmarks: tuple[Place, ...] = semantic(
        (), "files of prompts that must not be trained on: what overlaps with one is dropped"
    )
    own_tests: bool = semantic(
        default=False, description="drop prompts that overlap with the run's own dev or held-out"
    )


class PromptQuality(Section):
    """Three-level judgments of a prompt: intention, semantics, answerability (Section 3.2)."""

    judge: Literal["none", "model"] = semantic("none", "who judges prompts: none, or a model")
    model: Place | None = semantic(None, "folder or OpenAI-compatible URL; default: the critic's")
    engine: EngineConfig = EngineConfig()
    sampling: SamplingConfig = SamplingConfig(temperature=0.0, max_tokens=512)
    templates: str = semantic("quality", "name of a shipped set of templates, or a folder")
    least: Literal[-1, 0, 1] = semantic(0, "the lowest rating with which a prompt is kept")
    attempts: int = semantic(
        2, "attempts to read a reply before a prompt stays unjudged", ge=1, le=10
    )
    intentions: str | None = semantic(
        None, "name of a shipped taxonomy of intentions, or a YAML file; default: none"
    )
    per_intention: int = semantic(
        0, "the fewest prompts that each class should have in an iteration", ge=0
    )


class VarianceFilter(Section):
    """Drops prompts whose answers all have about the same reward (Section 3.4)."""

    margin: float | None = semantic(
        None, "epsilon: prompts with less variance of reward are dropped; default: none", gt=0
    )
    k: int = semantic(8, "answers a prompt, K, of which the variance is taken", ge=2)


People = Literal["decide", "ignored"]
"""The weight of people's ratings if the critic has rated the same answer."""


CutAnswers = Literal["left_out", "rejected"]


class PairsConfig(Section):
    """How pairs are chosen and balanced before training."""

    people: People = semantic(
        "decide", "ratings by people of answers that the critic rates, too: they decide, or ignored"
    )
    cut_answers: CutAnswers = semantic(
        "left_out",
        "by rule success_vs_failure, answers that the critic fails and that were cut off at "
        "max_tokens: in no pair, or rejected in pairs",
    )
    balance_length: bool = semantic(
        default=False,
        description="balance pairs: in each bucket longer answers win as often as they lose",
    )
    bucket_width: int = semantic(32, "width of a bucket, in tokens of difference in length", ge=1)
