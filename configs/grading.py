"""Grading completions from 1 to 5 in four aspects (UltraFeedback, Section 2.4)."""

from typing import Literal

from .engines import EngineConfig, SamplingConfig
from .section import Place, Section, semantic


class GradingConfig(Section):
    """The model that grades and critiques completions, and how it is asked."""

    model: Place | None = semantic(None, "folder or OpenAI-compatible URL; default: the critic's")
    engine: EngineConfig = EngineConfig()
    sampling: SamplingConfig = SamplingConfig(temperature=0.0, top_p=0.6, max_tokens=1024)
    templates: str = semantic("ultrafeedback", "name of a shipped set of templates, or a folder")
    score_form: Literal["line", "result", "brackets", "out_of", "json"] = semantic(
        "line",
        "how an overall score is written: `Overall score: 7`, `[RESULT] 7` (Prometheus), "
        "`Rating: [[7]]` (MT-bench), `Score: 7 out of 10`, or an object with a `score`",
    )
    use_reference: bool = semantic(
        default=True, description="show the reference answer, if there is one, as world knowledge"
    )
    equal_answers: Literal["once", "each"] = semantic(
        "once",
        "answers to a prompt that say the same, white space aside, are shown once, or each",
    )
    cut_answers: Literal["unscored", "graded"] = semantic(
        "unscored", "answers that were cut at max_tokens, which make no pair, are left unscored"
    )
    attempts: int = semantic(
        3, "attempts to read a reply before completions stay unscored", ge=1, le=10
    )
