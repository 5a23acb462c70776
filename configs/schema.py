"""The typed run configuration: every field has a meaning, a range and a default.

Unknown keys are refused. A field is *semantic* (it can change a row of the lake, and so is part of
unit keys) unless it is marked `cosmetic()` (it changes only how fast, where or how loudly the same
rows are made).
"""

from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

COSMETIC = "cosmetic"


def cosmetic(default: Any, description: str, **constraints: Any) -> Any:
    """Declare a field that can not change any row: it stays out of unit keys."""
    return Field(
        default, description=description, json_schema_extra={COSMETIC: True}, **constraints
    )


def _without_credentials(value: str) -> str:
    """Refuse a URL that carries a password: what the configuration says is stored with the run."""
    if "@" in value and "://" in value and "@" in urlsplit(value).netloc:
        raise ValueError("a URL must not carry credentials; set LPFLOOP_API_KEY instead")
    return value


Place = Annotated[str, Field(min_length=1), AfterValidator(_without_credentials)]
"""Where something is found: a shipped name, a path, or a URL."""


class Section(BaseModel):
    """A part of the configuration: immutable, and strict about its keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class SamplingConfig(Section):
    """How completions are drawn."""

    temperature: float = Field(default=1.0, ge=0, le=5, description="0 is greedy")
    top_p: float = Field(default=1.0, gt=0, le=1, description="nucleus mass")
    max_tokens: int = Field(default=256, ge=1, description="bound on the completion, in tokens")


class EngineConfig(Section):
    """What runs a language model, and where."""

    kind: Literal["auto", "vllm", "transformers", "openai", "scripted"] = Field(
        default="auto",
        description="auto: openai for a URL, else vllm if installed, else transformers",
    )
    dtype: str = Field(
        default="auto", description="weights' type: auto, float32, bfloat16, float16"
    )
    max_model_len: int | None = Field(
        default=None, ge=16, description="context, in tokens; default: the model's own"
    )
    model_name: str | None = Field(
        default=None, description="name the endpoint serves; default: its only model"
    )
    script: str | None = Field(
        default=None, description="scripted engine: dotted path of a function of a request"
    )
    base_urls: tuple[Place, ...] = cosmetic(
        (), "OpenAI-compatible endpoints, with /v1, used in turn"
    )
    api_key: SecretStr | None = cosmetic(None, "key of the endpoints; or set LPFLOOP_API_KEY")
    concurrency: int = cosmetic(64, "requests in flight", ge=1)
    timeout_s: float = cosmetic(120.0, "deadline of one request, in seconds", gt=0)
    memory_utilization: float = cosmetic(0.9, "share of a GPU's memory that vLLM takes", gt=0, le=1)
    kv_cache_gib: int = cosmetic(1, "vLLM's cache on a CPU, in GiB", ge=1)
    cpu_threads: int | None = cosmetic(
        None, "threads on a CPU; with 1, neighbours in flight change no bit", ge=1
    )
    tensor_parallel: int = cosmetic(1, "GPUs that one model spans", ge=1)


class PromptsConfig(Section):
    """Which prompts an iteration works on."""

    source: Place = Field(default="tiny", description="'tiny', or a JSONL file of prompts")
    held_out: str | None = Field(
        default=None, description="JSONL file of held-out prompts; default: split off `source`"
    )
    task: str | None = Field(
        default=None, description="task of prompts that name none; default: guessed by their fields"
    )
    held_out_share: float = Field(
        default=0.1, ge=0, le=0.5, description="split off `source` where a row names no split"
    )
    per_iteration: int | None = Field(
        default=None, ge=1, description="train prompts an iteration; default: all"
    )
    evaluated: int | None = Field(
        default=None, ge=1, description="held-out prompts evaluated; default: all"
    )
    chunk: int = Field(default=64, ge=1, description="prompts a unit of work holds")


class PolicyConfig(Section):
    """The model that is improved."""

    model: Place = Field(
        default="tiny", description="'tiny', a folder, or an OpenAI-compatible URL"
    )
    engine: EngineConfig = EngineConfig()
    sampling: SamplingConfig = SamplingConfig()


class CriticConfig(Section):
    """The feedback model f, its templates, and how its replies are read (Section 3.1)."""

    model: Place = Field(
        default="tiny", description="'tiny', a folder, or an OpenAI-compatible URL"
    )
    engine: EngineConfig = EngineConfig()
    sampling: SamplingConfig = SamplingConfig(temperature=0.0, max_tokens=512)
    kind: Literal["feedback", "verifier", "both"] = Field(
        default="feedback", description="who judges in the loop"
    )
    templates: str = Field(
        default="paper", description="name of a shipped set of templates, or a folder"
    )
    aspects: str = Field(
        default="paper", description="name of a shipped aspects file, or a YAML file"
    )
    task_aspects: dict[str, str] = Field(
        default={"math": "Logical Correctness", "facts": "Factuality"},
        description="tasks judged on one fixed aspect; the others choose three",
    )
    use_reference: bool = Field(
        default=True, description="show the reference to the critic where there is one"
    )
    attempts: int = Field(
        default=2, ge=1, le=10, description="replies asked before a candidate stays unscored"
    )
    retry_temperature: float = Field(
        default=0.7, ge=0, le=5, description="temperature of a second and later reply"
    )


class RewardConfig(Section):
    """The reward model r."""

    model: Place = Field(
        default="tiny", description="'tiny', or a folder with a sequence classifier of one label"
    )
    batch_size: int = Field(
        default=32, ge=1, description="conversations scored in one forward pass"
    )
    max_length: int = Field(
        default=1024, ge=8, description="longer conversations are not scored, in tokens"
    )


class DPOTraining(Section):
    """Direct preference optimisation (Eq. 3)."""

    beta: float = Field(
        default=0.1, gt=0, description="strength of the pull to the reference policy"
    )
    learning_rate: float = Field(default=2e-6, gt=0, le=1, description="peak, after the warm-up")
    epochs: float = Field(default=1.0, gt=0, description="passes over the iteration's pairs")
    batch_size: int = Field(default=64, ge=1, description="pairs an optimizer step")
    micro_batch_size: int = Field(default=8, ge=1, description="pairs a forward pass on one device")
    max_length: int = Field(default=2048, ge=16, description="prompt and answer, in tokens")
    warmup_ratio: float = Field(
        default=0.1, ge=0, lt=1, description="share of the steps that warm up"
    )
    scheduler: Literal["cosine", "linear", "constant"] = Field(
        default="cosine", description="learning rate after the warm-up"
    )
    sft_weight: float = Field(
        default=0.0, ge=0, description="weight of the next-token loss on chosen answers"
    )


class SFTTraining(Section):
    """Supervised fine-tuning on a rejection-sampling set."""

    learning_rate: float = Field(default=2e-5, gt=0, le=1, description="peak, after the warm-up")
    epochs: float = Field(
        default=3.0, gt=0, description="passes over the iteration's demonstrations"
    )
    batch_size: int = Field(default=128, ge=1, description="demonstrations an optimizer step")
    micro_batch_size: int = Field(
        default=8, ge=1, description="demonstrations a forward pass on one device"
    )
    max_length: int = Field(default=2048, ge=16, description="prompt and answer, in tokens")
    warmup_ratio: float = Field(
        default=0.03, ge=0, lt=1, description="share of the steps that warm up"
    )
    scheduler: Literal["cosine", "linear", "constant"] = Field(
        default="cosine", description="learning rate after the warm-up"
    )


class TrainingConfig(Section):
    """How M_{t+1} is made from M_t and the iteration's pairs or demonstrations."""

    reference: Literal["previous", "initial"] = Field(
        default="previous", description="DPO's reference policy"
    )
    min_pairs: int = Field(
        default=64, ge=1, description="fewer pairs or demonstrations stop the loop before training"
    )
    dpo: DPOTraining = DPOTraining()
    sft: SFTTraining = SFTTraining()
    accelerate_config: str | None = cosmetic(None, "file for `accelerate launch --config_file`")
    processes: int = cosmetic(1, "training processes, one a device", ge=1)


class RLRF(Section):
    """Reinforcement learning from reflective feedback: the paper's loop (Sections 3.1 to 3.4)."""

    name: Literal["rlrf"] = Field(default="rlrf", description="the variant; see `lpfloop variants`")
    n: int = Field(default=10, ge=1, description="candidates a prompt (D_y)")
    m: int = Field(default=20, ge=0, description="refinements of the promising candidate (D_z)")
    top_k: int = Field(default=3, ge=1, description="positives a prompt, by reward")
    train: Literal["dpo", "rs"] = Field(
        default="dpo", description="pairs for DPO, or positives for rejection sampling"
    )


class RewardOnly(Section):
    """The paper's baseline: positives by reward alone, random negatives, no critique (Sec. 4.1)."""

    name: Literal["reward-only"] = Field(
        default="reward-only", description="the variant; see `lpfloop variants`"
    )
    n: int = Field(default=10, ge=2, description="candidates a prompt (D_y)")
    top_k: int = Field(default=3, ge=1, description="positives a prompt, by reward")
    train: Literal["dpo", "rs"] = Field(
        default="dpo", description="pairs for DPO, or positives for rejection sampling"
    )


RecipeConfig = Annotated[RLRF | RewardOnly, Field(discriminator="name")]


class RunConfig(Section):
    """Everything a run depends on."""

    iterations: int = cosmetic(
        2, "iterations to reach; a finished run continues when it is raised", ge=0
    )
    seed: int = Field(default=0, ge=0, lt=2**53, description="root of every random number")
    prompts: PromptsConfig = PromptsConfig()
    policy: PolicyConfig = PolicyConfig()
    critic: CriticConfig = CriticConfig()
    reward: RewardConfig = RewardConfig()
    recipe: RecipeConfig = RLRF()
    training: TrainingConfig = TrainingConfig()
    exclusive: bool = cosmetic(
        default=False, description="keep one model on the device at a time (one GPU)"
    )
    evaluation: SamplingConfig = Field(
        default=SamplingConfig(temperature=0.0), description="how answers are evaluated"
    )


class ConfigError(ValueError):
    """A configuration that can not be used; the message names the file and the field."""


PRESETS = Path(__file__).parent / "presets"
