"""The settings of each recipe, and the union by which a configuration names one."""

from typing import Annotated, Literal

from pydantic import Field

from .section import Place, Section, semantic


class RLRF(Section):
    """Reinforcement learning from reflective feedback: the paper's loop (Sections 3.1 to 3.4)."""

    name: Literal["rlrf"] = semantic("rlrf", "the variant; see `lpfloop variants`")
    n: int = semantic(10, "candidates a prompt (D_y)", ge=1)
    m: int = semantic(20, "refinements of the promising candidate (D_z)", ge=0)
    top_k: int = semantic(3, "positives a prompt, by reward", ge=1)
    train: Literal["dpo", "rs"] = semantic(
        "dpo", "pairs for DPO, or positives for rejection sampling"
    )


class RewardOnly(Section):
    """The paper's baseline: positives by reward alone, random negatives, no critique (Sec. 4.1)."""

    name: Literal["reward-only"] = semantic("reward-only", "the variant; see `lpfloop variants`")
    n: int = semantic(10, "candidates a prompt (D_y)", ge=2)
    top_k: int = semantic(3, "positives a prompt, by reward", ge=1)
    train: Literal["dpo", "rs"] = semantic(
        "dpo", "pairs for DPO, or positives for rejection sampling"
    )


class SFT(Section):
    """Supervised fine-tuning on people's demonstrations (AlpacaFarm's SFT 10k)."""

    name: Literal["sft"] = semantic("sft", "the variant; see `lpfloop variants`")


class FeedME(Section):
    """Supervised fine-tuning on the preferred answer of each annotated pair."""

    name: Literal["feedme"] = semantic("feedme", "the variant; see `lpfloop variants`")
    n: int = semantic(2, "answers a prompt, of which pairs are annotated", ge=2)


class RewardConditioning(Section):
    """Both answers of a pair behind a control token; the positive one conditions the policy."""

    name: Literal["reward-conditioning"] = semantic(
        "reward-conditioning", "the variant; see `lpfloop variants`"
    )
    n: int = semantic(2, "answers a prompt, of which pairs are annotated", ge=2)
    positive: str = semantic("Good answer:", "what stands before a prompt whose answer won")
    negative: str = semantic("Bad answer:", "what stands before a prompt whose answer lost")


class DPO(Section):
    """Direct preference optimisation on annotated pairs."""

    name: Literal["dpo"] = semantic("dpo", "the variant; see `lpfloop variants`")
    n: int = semantic(2, "answers a prompt, of which pairs are annotated", ge=2)


class RewardModelling(Section):
    """A reward model from annotated pairs; the policy stays as it is."""

    name: Literal["reward-model"] = semantic("reward-model", "the variant; see `lpfloop variants`")
    n: int = semantic(2, "answers a prompt, of which pairs are annotated", ge=2)


class BestOfN(Section):
    """The best of n answers by reward, for a curve of n; nothing is trained but the reward."""

    name: Literal["best-of-n"] = semantic("best-of-n", "the variant; see `lpfloop variants`")
    n: int = semantic(2, "answers a prompt, of which pairs are annotated", ge=2)
    most: int = semantic(1024, "the largest n of the curve 1, 2, 4, ...", ge=2)
    top_p: float = semantic(1.0, "nucleus mass of its samples; 0.9 in the paper's code", gt=0, le=1)


class ExpertIteration(Section):
    """Best-of-n on unlabeled prompts, then supervised fine-tuning on the best."""

    name: Literal["expert-iteration"] = semantic(
        "expert-iteration", "the variant; see `lpfloop variants`"
    )
    n: int = semantic(2, "answers a prompt, of which pairs are annotated", ge=2)
    best_of: int = semantic(16, "samples a prompt, of which the best is learned", ge=2)
    start: Literal["initial", "previous"] = semantic(
        "initial", "what each round fine-tunes: M_0, or the policy before it"
    )


class PPO(Section):
    """Proximal policy optimisation against the reward model, with a KL penalty to M_0."""

    name: Literal["ppo"] = semantic("ppo", "the variant; see `lpfloop variants`")
    n: int = semantic(2, "answers a prompt, of which pairs are annotated", ge=2)


class Quark(Section):
    """Fine-tuning on the best quantile of the policy's own samples, with a KL penalty to M_0."""

    name: Literal["quark"] = semantic("quark", "the variant; see `lpfloop variants`")
    n: int = semantic(2, "answers a prompt, of which pairs are annotated", ge=2)


Binarisation = Literal["mean-vs-random", "best-vs-worst", "overall"]


class Graded(Section):
    """What UltraFeedback's recipes share: graded completions of a pool of models, binarised."""

    n: int = semantic(4, "completions a prompt, of as many models where the pool has them", ge=2)
    binarisation: Binarisation = semantic("mean-vs-random", "the rule that makes pairs of grades")
    mix: tuple[Place, ...] = semantic((), "files of other people's preferences to train on, too")


class UltraFeedbackDPO(Graded):
    """DPO on pairs of graded completions (UltraFeedback)."""

    name: Literal["ultrafeedback-dpo"] = semantic(
        "ultrafeedback-dpo", "the variant; see `lpfloop variants`"
    )


class UltraFeedbackBoN(Graded):
    """A reward model of graded completions, and its best of n answers (Section 3.2)."""

    name: Literal["ultrafeedback-bon"] = semantic(
        "ultrafeedback-bon", "the variant; see `lpfloop variants`"
    )
    most: int = semantic(16, "the largest n of the curve 1, 2, 4, ...", ge=2)
    top_p: float = semantic(1.0, "nucleus mass of its samples", gt=0, le=1)


class UltraFeedbackPPO(Graded):
    """PPO against a reward model of graded completions (Section 3.3)."""

    name: Literal["ultrafeedback-ppo"] = semantic(
        "ultrafeedback-ppo", "the variant; see `lpfloop variants`"
    )


class CritiqueModel(Section):
    """The critic's critiques, learned by the policy's own weights (UltraFeedback, Section 2.6)."""

    name: Literal["critique-model"] = semantic(
        "critique-model", "the variant; see `lpfloop variants`"
    )
    n: int = semantic(4, "answers a prompt, each critiqued", ge=1)


class ChatGLMPPO(Section):
    """ChatGLM-RLHF: a debiased reward model, then PPO against a reference reward."""

    name: Literal["chatglm-ppo"] = semantic("chatglm-ppo", "the variant; see `lpfloop variants`")
    n: int = semantic(4, "answers a prompt, every two of which are compared", ge=2)


class ChatGLMDPO(Section):
    """ChatGLM-RLHF: DPO on pairs that the reward model tells apart (Section 3.4)."""

    name: Literal["chatglm-dpo"] = semantic("chatglm-dpo", "the variant; see `lpfloop variants`")
    n: int = semantic(4, "answers a prompt, every two of which are compared", ge=2)
    best_of: int = semantic(8, "samples a prompt, of which pairs are made by reward", ge=2)
    top_k: int = semantic(1, "pairs a prompt", ge=1)


class ChatGLMRS(Section):
    """ChatGLM-RLHF's comparison: fine-tuning on the best samples by reward (Section 3.4)."""

    name: Literal["chatglm-rs"] = semantic("chatglm-rs", "the variant; see `lpfloop variants`")
    n: int = semantic(4, "answers a prompt, every two of which are compared", ge=2)
    best_of: int = semantic(8, "samples a prompt, of which the best is learned", ge=2)


RecipeConfig = Annotated[
    RLRF
    | RewardOnly
    | SFT
    | FeedME
    | RewardConditioning
    | DPO
    | RewardModelling
    | BestOfN
    | ExpertIteration
    | PPO
    | Quark
    | UltraFeedbackDPO
    | UltraFeedbackBoN
    | UltraFeedbackPPO
    | CritiqueModel
    | ChatGLMPPO
    | ChatGLMDPO
    | ChatGLMRS,
    Field(discriminator="name"),
]
