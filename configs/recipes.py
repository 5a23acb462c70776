"""The settings of each recipe; its base classes define the resources that it needs of a run.

A run opens exactly the resources that its recipe's settings need. A user's recipe takes one of
these classes, or one that extends the bases it needs.

In `Grouped` recipes any of these can reward an answer: the critic, the verifier, a reward model, a
user's function (`reward.model=./FILE.py:NAME`), or several of them by weight.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal, Self, cast, get_args

from pydantic import field_validator, model_validator

from .section import Place, Section, semantic


class Weights(Section):
    """Weights of which one at least is above 0."""

    @model_validator(mode="after")
    def _check_weights(self) -> Self:
        if not any(dict(self).values()):
            raise ValueError("all weights are 0: raise one of them")
        return self


class LessonWeights(Weights):
    """How often M_0 learns each lesson of a kind: 0.5 is half of them, drawn; 2 is each twice."""

    answer: float = semantic(1.0, "x to y: demonstrations", ge=0)
    reflection: float = semantic(1.0, "(x, y, f) to a better y", ge=0)
    critique: float = semantic(1.0, "(x, y) to f", ge=0)
    critique_with_reference: float = semantic(1.0, "(x, y, reference) to f", ge=0)


class PairWeights(Weights):
    """How often a reward model learns each pair of a kind: 0.5 is half of them, 2 each twice."""

    preferred: float = semantic(1.0, "pairs that people or annotators preferred", ge=0)
    verified: float = semantic(1.0, "right answers against wrong ones, by the verifier", ge=0)


# The bases


class Recipe(Section):
    """The settings of a recipe that needs only prompts, a policy and a critic.

    `preset` is the file of a preset world that it starts from, if the world has none for it.
    """

    preset: ClassVar[str] = "base"

    name: str = semantic("", "the recipe; see `lpfloop config recipes`")


class Completed(Recipe):
    """It can learn from the answers of a pool of models."""


class Annotated(Completed):
    """It learns from comparisons: annotators compare answers of the policy, or of a pool."""

    preset: ClassVar[str] = "alpacafarm"

    n: int = semantic(2, "answers a prompt, of which pairs are annotated", ge=2)


Binarisation = Literal["mean-vs-random", "best-vs-worst", "all-pairs", "overall"]


class Pooled(Completed):
    """A pool of models completes each prompt, and a grader grades the completions."""

    preset: ClassVar[str] = "ultrafeedback"

    n: int = semantic(4, "completions a prompt, of as many models where the pool has them", ge=2)


class Graded(Pooled):
    """It learns from graded completions of a pool of models, binarised."""

    binarisation: Binarisation = semantic("mean-vs-random", "the rule that makes pairs of grades")
    grades: Literal["by_rule", "both"] = semantic(
        "by_rule",
        "by_rule: only the grades that the rule reads; both: ratings in four aspects, and a "
        "critique with an overall score",
    )
    mix: tuple[Place, ...] = semantic((), "files of other people's preferences to train on, too")


class Rewarded(Recipe):
    """It optimises a reward: the configured reward model's, or else the one it trains.

    Together with `Annotated` or `Graded`: these are used only if no reward model is configured.
    """


class Ranked(Recipe):
    """It ranks answers by the configured reward model, which must be named."""


class Varied(Recipe):
    """It can leave out prompts whose answers all have the same reward."""


JudgeWeights = Literal["follows", "frozen"]
"""The weights that judge: the policy's of each iteration, or the configured critic's."""


class SelfJudged(Recipe):
    """The policy judges its own answers, or the configured critic does, by a setting."""

    judge: JudgeWeights = semantic(
        "follows",
        "who judges an iteration's answers: the policy that gave them (follows), or the configured "
        "critic in every iteration (frozen)",
    )


Objective = Literal["dpo", "rs"]


class Scheduled(Recipe):
    """It trains on pairs or on positives alone: the same each time, or by a schedule."""

    train: Objective | tuple[Objective, ...] = semantic(
        "dpo",
        "pairs for DPO, or positives for rejection sampling; a list is a schedule, such as "
        "[rs, dpo]: a word for each iteration, the last for all that follow",
    )

    @field_validator("train", mode="before")
    @classmethod
    def _words(cls, value: object) -> object:
        """Refuse a value that is neither a word nor a list of words, in one sentence."""
        listed = isinstance(value, list | tuple)
        words = cast("list[object]", value) if listed else [value]
        if not words or any(word not in get_args(Objective) for word in words):
            raise ValueError(
                "must be dpo or rs, or a list with one of them an iteration, such as [rs, dpo]"
            )
        return tuple(words) if listed else words[0]

    def objective(self, iteration: int) -> Objective:
        """Return the objective of an iteration; the first one is 1."""
        if isinstance(self.train, str):
            return self.train
        return self.train[min(iteration, len(self.train)) - 1]


Refined = Literal["all", "failures"]
"""Which promising candidates are refined: every one, or those that the critic does not pass."""


# The recipes


class RLRF(Scheduled, Varied):
    """Reinforcement learning from reflective feedback: the paper's loop (Sections 3.1 to 3.4)."""

    name: str = semantic("rlrf", "the recipe; see `lpfloop config recipes`")
    n: int = semantic(10, "candidates a prompt (D_y)", ge=1)
    m: int = semantic(20, "refinements of the promising candidate (D_z)", ge=0)
    refine: Refined = semantic(
        "all", "which promising candidates are refined: all, or failures, which the critic faults"
    )
    rounds: int = semantic(
        1,
        "refinements of refinements: in each round but the first, the best refined candidate of "
        "the previous round is refined with its critique, until the critic passes it",
        ge=1,
    )
    top_k: int = semantic(3, "positives a prompt, by reward", ge=1)

    def refined(self, number: int) -> Refined:
        """Return which promising candidates are refined in a round; the first one is 1."""
        return self.refine if number == 1 else "failures"

    @model_validator(mode="after")
    def _check_rounds(self) -> "RLRF":
        """Refuse rounds of no refinements."""
        if self.rounds > 1 and not self.m:
            raise ValueError(f"rounds is {self.rounds}, and m is 0: set m, or leave rounds out")
        return self


class KTO(Recipe):
    """Kahneman-Tversky optimisation on the critic's verdicts (Ethayarajh et al., 2024)."""

    name: str = semantic("kto", "the recipe; see `lpfloop config recipes`")
    n: int = semantic(4, "candidates a prompt, each a success or a failure", ge=1)


class RewardOnly(Scheduled, Ranked, Varied):
    """The paper's baseline: positives by reward alone, random negatives, no critique (Sec. 4.1)."""

    name: str = semantic("reward-only", "the recipe; see `lpfloop config recipes`")
    n: int = semantic(10, "candidates a prompt (D_y)", ge=2)
    top_k: int = semantic(3, "positives a prompt, by reward", ge=1)


class SelfRewarding(SelfJudged):
    """Self-rewarding language models: iterated DPO on the policy's own judgements."""

    name: str = semantic("self-rewarding", "the recipe; see `lpfloop config recipes`")
    n: int = semantic(4, "candidates a prompt, of which the best and the worst are paired", ge=2)


class SFT(Recipe):
    """Supervised fine-tuning on people's demonstrations (AlpacaFarm's SFT 10k)."""

    preset: ClassVar[str] = Annotated.preset

    name: str = semantic("sft", "the recipe; see `lpfloop config recipes`")


class FeedME(Annotated):
    """Supervised fine-tuning on the preferred answer of each annotated pair."""

    name: str = semantic("feedme", "the recipe; see `lpfloop config recipes`")


class RewardConditioning(Annotated):
    """Both answers of a pair after a control token; the positive one conditions the policy."""

    name: str = semantic("reward-conditioning", "the recipe; see `lpfloop config recipes`")
    positive: ClassVar[str] = "Good answer:"
    """Put before a prompt whose answer won."""
    negative: ClassVar[str] = "Bad answer:"
    """Put before a prompt whose answer lost."""


class DPO(Annotated):
    """Direct preference optimisation on annotated pairs."""

    name: str = semantic("dpo", "the recipe; see `lpfloop config recipes`")


class RewardModelling(Annotated):
    """A reward model from annotated pairs; the policy stays as it is."""

    name: str = semantic("reward-model", "the recipe; see `lpfloop config recipes`")


class BestOfN(Annotated, Rewarded):
    """The best of n answers by reward, for a curve of n; nothing is trained but the reward."""

    name: str = semantic("best-of-n", "the recipe; see `lpfloop config recipes`")
    most: int = semantic(1024, "the largest n of the curve 1, 2, 4, ...", ge=2)
    top_p: float = semantic(1.0, "nucleus mass of its samples; 0.9 in the paper's code", gt=0, le=1)


class ExpertIteration(Annotated, Rewarded, Varied):
    """Best-of-n on unlabeled prompts, then supervised fine-tuning on the best."""

    name: str = semantic("expert-iteration", "the recipe; see `lpfloop config recipes`")
    best_of: int = semantic(16, "samples a prompt, of which the best is learned", ge=2)
    top_p: float = semantic(
        1.0, "below 1: nucleus mass of these samples, in place of policy.sampling's", gt=0, le=1
    )
    start: Literal["initial", "previous"] = semantic(
        "initial", "the model that each round fine-tunes: M_0, or the previous policy"
    )


class PPO(Annotated, Rewarded, Varied):
    """Proximal policy optimisation against the reward model, with a KL penalty to M_0."""

    name: str = semantic("ppo", "the recipe; see `lpfloop config recipes`")


class Quark(Annotated, Rewarded, Varied):
    """Fine-tuning on the best quantile of the policy's own samples, with a KL penalty to M_0."""

    name: str = semantic("quark", "the recipe; see `lpfloop config recipes`")


class UltraFeedbackDPO(Graded):
    """DPO on pairs of graded completions (UltraFeedback)."""

    name: str = semantic("ultrafeedback-dpo", "the recipe; see `lpfloop config recipes`")


class UltraFeedbackBoN(Graded, Rewarded):
    """A reward model of graded completions, and its best of n answers (Section 3.2)."""

    name: str = semantic("ultrafeedback-bon", "the recipe; see `lpfloop config recipes`")
    most: int = semantic(16, "the largest n of the curve 1, 2, 4, ...", ge=2)
    top_p: float = semantic(1.0, "nucleus mass of its samples", gt=0, le=1)


class UltraFeedbackPPO(Graded, Rewarded, Varied):
    """PPO against a reward model of graded completions (Section 3.3)."""

    name: str = semantic("ultrafeedback-ppo", "the recipe; see `lpfloop config recipes`")


class UltraCM(Pooled):
    """The grader's critiques, learned with their scores (UltraFeedback, Section 2.6)."""

    name: str = semantic("ultracm", "the recipe; see `lpfloop config recipes`")


class CritiqueModel(Recipe):
    """The critic's critiques, learned by the policy's own weights (UltraFeedback, Section 2.6)."""

    name: str = semantic("critique-model", "the recipe; see `lpfloop config recipes`")
    n: int = semantic(4, "answers a prompt, each critiqued", ge=1)


class ReflectiveSFT(Recipe):
    """One training on answers, reflections and critiques: M_0 and the critic (RLRF, Table 1)."""

    name: str = semantic("reflective-sft", "the recipe; see `lpfloop config recipes`")
    n: int = semantic(1, "answers a prompt, each critiqued and revised by the critic", ge=1)
    drafted: float = semantic(1.0, "share of the prompts that are answered so", gt=0, le=1)
    revised: float = semantic(1.0, "share of these whose answers are revised", gt=0, le=1)
    refine: Refined = semantic(
        "all", "which answers are revised: all, or failures, which the critic faults"
    )
    weights: LessonWeights = LessonWeights()


class TaskReward(Annotated):
    """A reward model from preferences and from right answers against wrong ones (RLRF, Table 1)."""

    preset: ClassVar[str] = Recipe.preset

    name: str = semantic("task-reward", "the recipe; see `lpfloop config recipes`")
    best_of: int = semantic(4, "samples a prompt that can be verified", ge=2)
    top_k: int = semantic(1, "right answers a prompt, each against a wrong one", ge=1)
    weights: PairWeights = PairWeights()


class ChatGLM(Annotated, Rewarded, Varied):
    """The shared settings of ChatGLM-RLHF's recipes: a debiased reward model of all comparisons."""

    preset: ClassVar[str] = "chatglm"

    n: int = semantic(4, "answers a prompt, every two of which are compared", ge=2)


class ChatGLMPPO(ChatGLM):
    """ChatGLM-RLHF: a debiased reward model, then PPO against a reference reward."""

    name: str = semantic("chatglm-ppo", "the recipe; see `lpfloop config recipes`")


class ChatGLMDPO(ChatGLM):
    """ChatGLM-RLHF: DPO on pairs that the reward model tells apart (Section 3.4)."""

    name: str = semantic("chatglm-dpo", "the recipe; see `lpfloop config recipes`")
    best_of: int = semantic(8, "samples a prompt, of which pairs are made by reward", ge=2)
    top_k: int = semantic(1, "pairs a prompt", ge=1)


class ChatGLMRS(ChatGLM):
    """ChatGLM-RLHF's comparison: fine-tuning on the best samples by reward (Section 3.4)."""

    name: str = semantic("chatglm-rs", "the recipe; see `lpfloop config recipes`")
    best_of: int = semantic(8, "samples a prompt, of which the best is learned", ge=2)


class RewardWeights(Weights):
    """r(x, y), a sum: the weight of each judge of an answer; a judge of weight 0 is not used."""

    verifier: float = semantic(0.0, "1 where the verifier finds an answer right, else 0", ge=0)
    critic: float = semantic(1.0, "share of the aspects the critic rates that it passes", ge=0)
    reward: float = semantic(
        0.0, "scalar of `reward.model`: a model, or a function as ./FILE.py:NAME", ge=0
    )

    @property
    def counted(self) -> Mapping[str, float]:
        """The weights above 0."""
        weights: dict[str, float] = dict(self)
        return {name: weight for name, weight in weights.items() if weight}


class Grouped(Recipe):
    """It samples groups of answers while it trains, each rewarded by the judges of `rewards`."""

    preset: ClassVar[str] = "grouped"

    rewards: RewardWeights = RewardWeights()


class GRPO(Grouped, Varied):
    """Group relative policy optimisation (DeepSeekMath, Section 4.1)."""

    name: str = semantic("grpo", "the recipe; see `lpfloop config recipes`")


class RLOO(Grouped, Varied):
    """REINFORCE, each answer against the mean of the others (Ahmadian et al., 2024)."""

    name: str = semantic("rloo", "the recipe; see `lpfloop config recipes`")


class OnlineDPO(Grouped, Varied):
    """DPO on pairs of answers drawn and judged while it trains (Guo et al., 2024)."""

    name: str = semantic("online-dpo", "the recipe; see `lpfloop config recipes`")
