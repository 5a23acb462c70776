"""Filters that drop prompts, comparisons and pairs before they cost anything (ChatGLM-RLHF)."""

from typing import Literal

from .engines import EngineConfig, SamplingConfig
from .section import Place, Section, semantic


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


class PairsConfig(Section):
    """How pairs are chosen and balanced before training."""

    people: People = semantic(
        "decide", "ratings by people of answers that the critic rates, too: they decide, or ignored"
    )
    balance_length: bool = semantic(
        default=False,
        description="balance pairs: in each bucket longer answers win as often as they lose",
    )
    bucket_width: int = semantic(32, "width of a bucket, in tokens of difference in length", ge=1)
