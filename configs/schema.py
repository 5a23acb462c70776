"""The typed run configuration: every field has a meaning, a range and a default.

Its parts are in `engines`, `methods`, `annotation`, `recipes` and others; `section` defines the
declarations of a field.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny

from .annotation import AnnotationConfig, AssessmentConfig, EvalSetName
from .engines import NO_MODEL, EngineConfig, SamplingConfig
from .judging import (
    CriticConfig,
    FactsConfig,
    GradingConfig,
    PairsConfig,
    PromptQuality,
    RuleFilters,
    VarianceFilter,
)
from .mistakes import ConfigError
from .recipe_names import chosen_recipe
from .recipes import RLRF, Recipe
from .section import (
    AutoCount,
    Devices,
    Place,
    Section,
    WorkerPlace,
    cosmetic,
    live,
    semantic,
)
from .training import TrainingConfig

__all__ = [
    "PRESETS",
    "BudgetConfig",
    "ConfigError",
    "CriticConfig",
    "EngineConfig",
    "ModelPrice",
    "PartsConfig",
    "PolicyConfig",
    "PriceConfig",
    "PromptsConfig",
    "RewardConfig",
    "RunConfig",
    "SamplingConfig",
    "SmokeConfig",
    "TrainingConfig",
]


class PartsConfig(Section):
    """How many of an iteration's prompts serve each purpose; fewer are split in proportion.

    The sizes are AlpacaFarm's (Section 4.1). Recipes that do not use parts take all prompts.
    """

    layout: Literal["disjoint", "used", "same"] = semantic(
        "disjoint",
        "disjoint: no prompt is in two parts; used: disjoint among the parts that the recipe uses; "
        "same: every part is taken from all prompts",
    )

    sft: int = semantic(10_000, "prompts with demonstrations, for fine-tuning the policy", ge=0)
    preference: int = semantic(10_000, "prompts whose answers are compared", ge=0)
    unlabeled: int = semantic(20_000, "prompts on which a policy is optimised", ge=0)


PromptField = Literal[
    "prompt",
    "messages",
    "reference",
    "task",
    "prompt_id",
    "split",
    "source",
    "checks",
    "family",
    "cluster",
    "part",
]
"""The types of a field in a row of prompts."""


class PromptsConfig(Section):
    """The prompts of an iteration."""

    source: Place = semantic(
        NO_MODEL,
        "'tiny', 'smol', hf:OWNER/NAME, or a file or folder of prompts: JSONL, JSON, CSV, Parquet, "
        "or the output of `save_to_disk`; required",
    )
    held_out: str | dict[EvalSetName, Place] | None = semantic(
        None,
        "file or folder of held-out prompts, or several named sets that are measured separately: "
        "{gsm8k: FILE, bios: FILE}; default: split off `source`",
    )
    turns: Literal["all", "first", "last"] = semantic(
        "all",
        "first: of a conversation only the user's first turn, and the system's before it; "
        "last: all to the user's last turn, without the answer that follows",
    )
    input: Literal["joined", "headed"] = semantic(
        "joined",
        "how an Alpaca row's `input` follows its instruction: after a blank line, or (headed) "
        "below `### Input:`, which the template alpaca turns into its form with an input",
    )
    fields: dict[PromptField, Place] = semantic(
        {}, "names of the columns if they differ from lpfloop's: {prompt: text}"
    )
    task: str | None = semantic(
        None, "task of prompts without one; default: guessed from their fields"
    )
    dev: str | None = semantic(
        None, "file or folder of dev prompts, which decide inside the loop; default: split off"
    )
    skip_bad: bool = semantic(default=False, description="skip unreadable rows, and count them")
    held_out_share: float = semantic(
        0.1, "share split off `source` if its rows name no split", ge=0, le=0.5
    )
    dev_share: float = semantic(
        0.1, "share of `source` that becomes dev prompts, if `dev` is not set", ge=0, le=0.5
    )
    per_iteration: int | None = semantic(None, "train prompts an iteration; default: all", ge=1)
    max_test: int | None = semantic(None, "held-out prompts evaluated; default: all", ge=1)
    max_dev: int | None = semantic(660, "dev prompts that decide; null: all", ge=1)
    chunk: int = semantic(64, "prompts in a unit of work", ge=1)
    parts: PartsConfig = PartsConfig()
    rules: RuleFilters = RuleFilters()
    quality: PromptQuality = PromptQuality()
    variance: VarianceFilter = VarianceFilter()


class PolicyConfig(Section):
    """The model to improve."""

    model: Place = semantic(
        NO_MODEL, "'tiny', 'smol', a folder, or an OpenAI-compatible URL; required"
    )
    engine: EngineConfig = EngineConfig()
    sampling: SamplingConfig = SamplingConfig()


class RewardConfig(Section):
    """The reward model r."""

    model: Place = semantic(
        NO_MODEL,
        "'tiny', 'none', a folder with a sequence classifier of one label, or ./FILE.py:NAME",
    )
    batch_size: int = semantic(
        32,
        "conversations in one forward pass; on a GPU, of which a pass has the tokens at most",
        ge=1,
    )
    max_length: int = semantic(1024, "longer conversations are not scored, in tokens", ge=8)
    sees_end: bool = semantic(
        default=True,
        description="show the end token of whole answers to the model; cut answers end without it",
    )
    dtype: Literal["auto", "float32", "bfloat16"] = semantic(
        "auto", "weights' type; auto: bfloat16 on a GPU, on a CPU float32"
    )
    place: WorkerPlace = live("local", "where its workers are, as for `policy.engine.place`")
    devices: Devices = cosmetic(
        "auto", "GPUs of this machine that it runs on, by number, such as [0, 1]; auto: all visible"
    )
    replicas: AutoCount = live(
        "auto",
        "copies of the model that share its work; auto: one on each device, or all that join",
    )


Tracker = Literal["tensorboard", "trackio", "wandb"]


class TrackingConfig(Section):
    """Sends stored figures to trackers after each iteration; offline unless `online` is set."""

    to: tuple[Tracker, ...] = cosmetic((), "trackers: tensorboard, trackio, wandb; default: none")
    project: str = cosmetic("lpfloop", "the project under which they file the run", min_length=1)
    folder: Place | None = cosmetic(
        None, "where their files go; default: the folder `tracking` of the run"
    )
    online: bool = cosmetic(default=False, description="let wandb send to its server")


class SmokeConfig(Section):
    """A few prompts through all stages of a run, before anything long is paid for.

    Its rows are not trained on, published or evaluated, so no row of the loop depends on them.
    """

    prompts: int = cosmetic(
        3, "prompts of the test, as different in task as there are; 0: no test", ge=0, le=64
    )
    max_parse_failures: float = cosmetic(
        0.5,
        "share of a judge's replies that may be unreadable: in the test, and of a stage's first "
        "200 or more; above it the run stops",
        ge=0,
        le=1,
    )
    train: bool = cosmetic(
        default=True, description="whether a step of each training that the recipe needs is tried"
    )


class VerdictConfig(Section):
    """After each iteration M_t is compared with others, prompt by prompt, on the dev prompts."""

    on_regression: Literal["continue", "rollback", "stop"] = semantic(
        "rollback",
        "where the next iteration begins if M_t is not at least as good as the best, by the "
        "tolerances: rollback: with the best; continue: with M_t; stop: nowhere",
    )
    regression_tolerance: float = semantic(
        0.01, "largest accepted loss against the best model, over all prompts", ge=0, le=1
    )
    task_tolerance: float = semantic(
        0.03, "largest accepted loss against the best model in one task", ge=0, le=1
    )
    converged_after: int | None = cosmetic(
        None, "the run ends after so many iterations without a new best model; default: never", ge=1
    )


class AlarmsConfig(Section):
    """Looks for alarms in M_t's stored answers and training rows after each iteration."""

    watch: bool = semantic(default=True, description="whether they are looked at")
    on_alarm: Literal["continue", "stop"] = live(
        "stop",
        "stop: a stopping alarm ends the run before the next iteration; continue: it is only "
        "reported",
    )


class CompletionConfig(Section):
    """Which models answer, and under which principle in the system prompt."""

    pool: str = semantic(
        "policy",
        "name of a shipped pool of models, or a YAML file; policy: the policy alone, at several "
        "temperatures for grading, by policy.sampling for comparisons",
    )
    principles: str = semantic(
        "ultrafeedback",
        "where answers are graded: name of a shipped mix of principles by source, a YAML file, or "
        "none",
    )


class BudgetConfig(Section):
    """Limits of a run's total cost; at a limit it stops cleanly and can be resumed with more."""

    tokens: int | None = live(None, "prompt and completion tokens of all models", ge=0)
    judge_calls: int | None = live(None, "requests to the feedback model", ge=0)
    money: float | None = live(None, "cost by `prices`, in their currency", ge=0)
    hours: float | None = live(None, "wall time of all stages, in hours", ge=0)
    disk_gib: float | None = live(None, "size of the run's folder, in GiB", ge=0)


class ModelPrice(Section):
    """The price of a million tokens of a model."""

    prompt: float = Field(ge=0)
    completion: float = Field(ge=0)


class PriceConfig(Section):
    """Prices of models, in a currency of your choice; a local model without a price costs 0."""

    models: dict[str, ModelPrice] = live(
        {}, "prices by the names that models are served under: {prompt, completion} a million"
    )
    batch: float = live(0.5, "share of its price that a request in a batch file costs", ge=0, le=1)


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
    injection_guard: bool = semantic(
        default=True,
        description="read a judge's verdict only after a random line that no text can contain",
    )
    completion: CompletionConfig = CompletionConfig()
    grading: GradingConfig = GradingConfig()
    pairs: PairsConfig = PairsConfig()
    training: TrainingConfig = TrainingConfig()
    annotation: AnnotationConfig = AnnotationConfig()
    assessment: AssessmentConfig = AssessmentConfig()
    facts: FactsConfig = FactsConfig()
    verdict: VerdictConfig = VerdictConfig()
    alarms: AlarmsConfig = AlarmsConfig()
    overlap: bool = cosmetic(
        default=True,
        description="run stages together if their models are on separate devices or endpoints",
    )
    memory: Literal["refuse", "warn", "ignore"] = cosmetic(
        "refuse", "if the computed memory of a stage exceeds its device: refuse, warn or ignore"
    )
    smoke: SmokeConfig = SmokeConfig()
    tracking: TrackingConfig = TrackingConfig()
    shutdown_timeout_s: float = live(
        30.0, "how long a stop waits for work in flight, in seconds", ge=0
    )
    budget: BudgetConfig = BudgetConfig()
    prices: PriceConfig = PriceConfig()
    evaluation: SamplingConfig = semantic(
        SamplingConfig(temperature=0.0), "how held-out answers are drawn"
    )


PRESETS = Path(__file__).parent / "presets"
