"""The typed run configuration: every field has a meaning, a range and a default.

The parts that a run is made of stand beside it: `engines`, `methods`, `annotation`, `recipes`. What
a field may declare stands in `section`.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, SerializeAsAny

from .annotation import AnnotationConfig, AssessmentConfig
from .completion import CompletionConfig
from .engines import EngineConfig, SamplingConfig
from .filters import PairsConfig, PromptQuality, RuleFilters, VarianceFilter
from .grading import GradingConfig
from .methods import (
    DPOTraining,
    NextToken,
    PPOTraining,
    QuarkTraining,
    RewardTraining,
    SFTTraining,
)
from .recipes import RLRF, Recipe
from .section import ConfigError, Place, Section, cosmetic, live, semantic
from .variants import chosen_recipe

__all__ = [
    "PRESETS",
    "BudgetConfig",
    "ConfigError",
    "CriticConfig",
    "EmbedderConfig",
    "EngineConfig",
    "IndexConfig",
    "PartsConfig",
    "PolicyConfig",
    "PriceConfig",
    "PromptsConfig",
    "RewardConfig",
    "RunConfig",
    "SamplingConfig",
    "TrainingConfig",
]


class PartsConfig(Section):
    """How many of an iteration's prompts serve which purpose; fewer are cut in these proportions.

    The sizes are AlpacaFarm's (Section 4.1). Recipes that need no parts take all prompts.
    """

    sft: int = semantic(10_000, "prompts whose demonstrations the policy is fine-tuned on", ge=0)
    preference: int = semantic(10_000, "prompts whose answers are compared", ge=0)
    unlabeled: int = semantic(20_000, "prompts that a policy is optimised on", ge=0)


class PromptsConfig(Section):
    """Which prompts an iteration works on."""

    source: Place = semantic("tiny", "'tiny', or a JSONL file of prompts")
    held_out: str | None = semantic(
        None, "JSONL file of held-out prompts; default: split off `source`"
    )
    task: str | None = semantic(
        None, "task of prompts that name none; default: guessed by their fields"
    )
    held_out_share: float = semantic(
        0.1, "split off `source` where a row names no split", ge=0, le=0.5
    )
    per_iteration: int | None = semantic(None, "train prompts an iteration; default: all", ge=1)
    evaluated: int | None = semantic(None, "held-out prompts evaluated; default: all", ge=1)
    chunk: int = semantic(64, "prompts a unit of work holds", ge=1)
    parts: PartsConfig = PartsConfig()
    rules: RuleFilters = RuleFilters()
    quality: PromptQuality = PromptQuality()
    variance: VarianceFilter = VarianceFilter()


class PolicyConfig(Section):
    """The model that is improved."""

    model: Place = semantic("tiny", "'tiny', a folder, or an OpenAI-compatible URL")
    engine: EngineConfig = EngineConfig()
    sampling: SamplingConfig = SamplingConfig()


class CriticConfig(Section):
    """The feedback model f, its templates, and how its replies are read (Section 3.1)."""

    model: Place = semantic("tiny", "'tiny', a folder, or an OpenAI-compatible URL")
    engine: EngineConfig = EngineConfig()
    sampling: SamplingConfig = SamplingConfig(temperature=0.0, max_tokens=512)
    kind: Literal["feedback", "verifier", "both"] = semantic("feedback", "who judges in the loop")
    templates: str = semantic("paper", "name of a shipped set of templates, or a folder")
    aspects: str = semantic("paper", "name of a shipped aspects file, or a YAML file")
    task_aspects: dict[str, str] = semantic(
        {"math": "Logical Correctness", "facts": "Factuality"},
        "tasks judged on one fixed aspect; the others choose three",
    )
    use_reference: bool = semantic(
        default=True, description="show the reference to the critic where there is one"
    )
    attempts: int = semantic(2, "replies asked before a candidate stays unscored", ge=1, le=10)
    retry_temperature: float = semantic(0.7, "temperature of a second and later reply", ge=0, le=5)


class RewardConfig(Section):
    """The reward model r."""

    model: Place = semantic(
        "tiny", "'tiny', 'none', or a folder with a sequence classifier of one label"
    )
    batch_size: int = semantic(32, "conversations scored in one forward pass", ge=1)
    max_length: int = semantic(1024, "longer conversations are not scored, in tokens", ge=8)
    sees_end: bool = semantic(
        default=True, description="whether the model reads the answer's end token"
    )


class TrainingConfig(Section):
    """How M_{t+1} is made from M_t and the iteration's pairs or demonstrations."""

    reference: Literal["previous", "initial"] = semantic("previous", "DPO's reference policy")
    min_pairs: int = semantic(
        64, "fewer pairs or demonstrations stop the loop before training", ge=1
    )
    dpo: DPOTraining = DPOTraining()
    sft: SFTTraining = SFTTraining()
    reward: RewardTraining = RewardTraining()
    ppo: PPOTraining = PPOTraining()
    quark: QuarkTraining = QuarkTraining()
    next_token: NextToken = NextToken()
    accelerate_config: str | None = cosmetic(
        None, "file for `accelerate launch --config_file`; not for PPO and Quark"
    )
    processes: int = cosmetic(
        1, "training processes, one a device; PPO and Quark always take one", ge=1
    )
    retries: int = cosmetic(2, "times that a training that failed is started again", ge=0)
    stall_s: float = cosmetic(
        1800.0, "a trainer that gives no sign of life for so long counts as hung, in seconds", gt=0
    )


class BudgetConfig(Section):
    """What a run may spend in all; reached, it stops cleanly and can be resumed with more."""

    tokens: int | None = live(None, "prompt and completion tokens of all models", ge=0)
    judge_calls: int | None = live(None, "questions to the feedback model", ge=0)
    money: float | None = live(None, "cost by the price table, in its currency", ge=0)
    hours: float | None = live(None, "wall time that stages took", ge=0)
    disk_gib: float | None = live(None, "size of the run's folder, in GiB", ge=0)


class PriceConfig(Section):
    """What a million tokens cost, in a currency of your own."""

    policy_prompt: float = live(0.0, "a million prompt tokens of the policy", ge=0)
    policy_completion: float = live(0.0, "a million completion tokens of the policy", ge=0)
    critic_prompt: float = live(0.0, "a million prompt tokens of the feedback model", ge=0)
    critic_completion: float = live(0.0, "a million completion tokens of the feedback model", ge=0)


class EmbedderConfig(Section):
    """What makes vectors of texts for `lpfloop search --vector` and `--hybrid`."""

    kind: Literal["none", "policy", "endpoint", "sentence-transformers"] = cosmetic(
        "policy", "policy: the mean hidden state of the model that the run began with"
    )
    model: Place | None = cosmetic(
        None, "a folder, or the endpoint's URL; default: the policy's folder"
    )
    model_name: str | None = cosmetic(None, "name the endpoint serves; default: its only model")
    max_tokens: int = cosmetic(512, "a longer text is cut for its vector, in tokens", ge=8)
    batch_size: int = cosmetic(32, "texts in one forward pass or one request", ge=1, le=2048)


class IndexConfig(Section):
    """The search index of the lake (`lpfloop reindex`)."""

    embedder: EmbedderConfig = EmbedderConfig()


class RunConfig(Section):
    """Everything a run depends on."""

    iterations: int = cosmetic(
        2, "iterations to reach; a finished run continues when it is raised", ge=0
    )
    seed: int = semantic(0, "root of every random number", ge=0, lt=2**53)
    prompts: PromptsConfig = PromptsConfig()
    policy: PolicyConfig = PolicyConfig()
    critic: CriticConfig = CriticConfig()
    reward: RewardConfig = RewardConfig()
    recipe: Annotated[SerializeAsAny[Recipe], BeforeValidator(chosen_recipe)] = RLRF()
    mode: Literal["fixed", "faithful_paper", "faithful_code"] = semantic(
        "fixed", "defaults for what AlpacaFarm's paper and its code do differently"
    )
    completion: CompletionConfig = CompletionConfig()
    grading: GradingConfig = GradingConfig()
    pairs: PairsConfig = PairsConfig()
    training: TrainingConfig = TrainingConfig()
    annotation: AnnotationConfig = AnnotationConfig()
    assessment: AssessmentConfig = AssessmentConfig()
    exclusive: bool = cosmetic(
        default=False, description="keep one model on the device at a time (one GPU)"
    )
    drain_s: float = live(30.0, "how long a stop waits for what is in flight, in seconds", ge=0)
    budget: BudgetConfig = BudgetConfig()
    prices: PriceConfig = PriceConfig()
    index: IndexConfig = IndexConfig()
    evaluation: SamplingConfig = semantic(
        SamplingConfig(temperature=0.0), "how answers are evaluated"
    )


PRESETS = Path(__file__).parent / "presets"
