"""Simulated annotators that compare answers, and how a policy is assessed on each eval set."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal, TypeVar, cast

from pydantic import AfterValidator, Field

from .engines import EngineConfig, SamplingConfig
from .section import Place, Section, semantic

V = TypeVar("V")

_SIDE_EVAL = re.compile(r"-[0-9a-f]{8}$")
"""The end of the name of a file that is measured outside a run: the hash of its prompts."""


def _not_a_side_eval(name: str) -> str:
    if _SIDE_EVAL.search(name):
        raise ValueError(
            f"eval set name {name!r} must not end in a hash, as in names of `lpfloop eval run`"
        )
    return name


EvalSetName = Annotated[
    str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$"), AfterValidator(_not_a_side_eval)
]
"""The name of a set of held-out prompts."""


def of_eval_set(setting: V | Mapping[str, V] | None, eval_set: str | None) -> V | None:
    """Return a setting's value for a set: the same for all, unless the setting names sets."""
    if isinstance(setting, Mapping):
        named = cast("Mapping[str, V]", setting)
        return None if eval_set is None else named.get(eval_set)
    return setting


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
