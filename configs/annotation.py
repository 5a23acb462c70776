"""Simulated annotators that compare answers, and how a policy is assessed by comparisons."""

from typing import Literal

from .engines import EngineConfig, SamplingConfig
from .eval_set_names import EvalSetName
from .section import Place, Section, semantic

Role = Literal["strong", "medium", "weak"]
"""Which of three models an annotator of a pool uses."""
Ordering = Literal["random", "both"]
"""The order in which an annotator sees two answers."""
Keying = Literal["pair", "instruction"]
"""The inputs of the draws of annotator, order and noise."""


class AnnotatorModel(Section):
    """A model that pairwise annotators use."""

    model: Place | None = semantic(
        None, "folder or OpenAI-compatible URL; needed if the pool has it"
    )
    engine: EngineConfig = EngineConfig()


class AnnotationConfig(Section):
    """Simulated annotators: a pool of prompted models, with noise (AlpacaFarm, Section 3)."""

    source: tuple[Place, ...] = semantic(
        (),
        "files of people's comparisons in an imported format, or run:NAME, to train on in place of "
        "the annotators'",
    )
    pool: str = semantic("alpacafarm", "name of a shipped pool, or a YAML file")
    strong: AnnotatorModel = AnnotatorModel()
    medium: AnnotatorModel = AnnotatorModel()
    weak: AnnotatorModel = AnnotatorModel()
    flip_probability: float = semantic(
        0.25,
        "share of labels flipped by noise in training (p_ann); none in evaluation (p_eval)",
        ge=0,
        le=0.5,
    )
    single: str | None = semantic(
        None, "only this annotator of the pool, at temperature 0 and without noise (p_single)"
    )
    keyed_on: Keying = semantic(
        "pair",
        "in training, draw annotator, order and noise for each pair, or once for all pairs of a "
        "prompt; evaluation draws once for a prompt",
    )
    order: Ordering = semantic(
        "random", "show the answers in a random order, or in both orders and reconcile the two"
    )
    attempts: int = semantic(
        2, "attempts to read a reply before a pair stays unscored", ge=1, le=10
    )
    comparisons: Literal["one", "all"] = semantic(
        "one", "compare one pair of each prompt's answers, or all pairs"
    )
    cut_answers: Literal["left_out", "compared"] = semantic(
        "left_out", "answers that were cut off: in no pair, or compared and learned like others"
    )
    top_p: float = semantic(
        1.0,
        "below 1: nucleus mass of the answers that are compared, in place of policy.sampling's",
        gt=0,
        le=1,
    )
    drop_cycles: bool = semantic(
        default=False,
        description="drop ties, and the fewest comparisons so that no two contradict each other",
    )

    def model_of(self, role: Role) -> AnnotatorModel:
        """Return the model that annotators of a role use."""
        return {"strong": self.strong, "medium": self.medium, "weak": self.weak}[role]


INITIAL = "initial"
"""The reference that is not a file: M_0's own answers."""


class AnswerJudge(Section):
    """The strong model that scores answers by forms; without a name here, no model does."""

    model: Place | None = semantic(
        None, "folder or OpenAI-compatible URL; not the policy, and needed for assessment.scores"
    )
    engine: EngineConfig = EngineConfig()
    sampling: SamplingConfig = SamplingConfig(temperature=0.0, max_tokens=1024)
    attempts: int = semantic(
        3, "attempts to read a reply before an answer stays unscored", ge=1, le=10
    )


class AssessmentConfig(Section):
    """Measurements of a policy's held-out answers in addition to verification."""

    reference: Place | dict[EvalSetName, Place] | None = semantic(
        None,
        "whose answers to win against: initial (M_0's own, shown in both orders), tiny, or a file "
        "of another model's outputs, for each named set of held-out prompts its own if need be; "
        "default: no win-rate",
    )
    annotators: Literal["pool", "single"] = semantic(
        "pool", "who compares: p_eval (the pool without noise), or p_single"
    )
    reward: bool | None = semantic(
        None,
        "measure the mean reward of the answers; default: where the recipe asks a reward model "
        "anyway",
    )
    kl: bool = semantic(
        default=False,
        description="measure the KL to M_0, in nats an answer, by one sample a prompt",
    )
    probes: Place | None = semantic(
        None, "capability probes before and after: tiny, or a JSONL file of prompts with checks"
    )
    scores: tuple[Place, ...] | dict[EvalSetName, tuple[Place, ...]] = semantic(
        (),
        "forms by which assessment.judge scores each answer: just-eval, alignbench, alignbench-zh "
        "or a YAML file; for each named set of held-out prompts its own if need be",
    )
    judge: AnswerJudge = AnswerJudge()
    oracle: str | None = semantic(
        None, "dotted path of a function (instruction, answer) -> score: the true score, if known"
    )
