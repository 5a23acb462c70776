"""The typed run configuration: every field has a meaning, a range and a default.

Unknown keys are refused. Every field declares its effect: *semantic* (it can change a row of the
lake, and so is part of unit keys), *cosmetic* (it changes only how fast, where or how loudly the
same rows are made) or *live* (cosmetic, and can be changed while the run goes on).
"""

from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

EFFECT = "effect"
Effect = Literal["semantic", "cosmetic", "live"]


def semantic(default: Any, description: str, **constraints: Any) -> Any:
    """Declare a field that can change a row: it is part of unit keys."""
    return _declared("semantic", default, description, **constraints)


def cosmetic(default: Any, description: str, **constraints: Any) -> Any:
    """Declare a field that can not change any row: it stays out of unit keys."""
    return _declared("cosmetic", default, description, **constraints)


def live(default: Any, description: str, **constraints: Any) -> Any:
    """Declare a cosmetic field that `lpfloop ctl set` can change while the run goes on."""
    return _declared("live", default, description, **constraints)


def _declared(effect: Effect, default: Any, description: str, **constraints: Any) -> Any:
    extra: dict[str, Any] = {EFFECT: effect}
    return Field(default, description=description, json_schema_extra=extra, **constraints)


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

    temperature: float = semantic(1.0, "0 is greedy", ge=0, le=5)
    top_p: float = semantic(1.0, "nucleus mass", gt=0, le=1)
    max_tokens: int = semantic(256, "bound on the completion, in tokens", ge=1)


class EngineConfig(Section):
    """What runs a language model, and where."""

    kind: Literal["auto", "vllm", "transformers", "openai", "scripted"] = semantic(
        "auto", "auto: openai for a URL, else vllm if installed, else transformers"
    )
    dtype: str = semantic("auto", "weights' type: auto, float32, bfloat16, float16")
    max_model_len: int | None = semantic(
        None, "context, in tokens; default: the model's own", ge=16
    )
    model_name: str | None = semantic(None, "name the endpoint serves; default: its only model")
    script: str | None = semantic(None, "scripted engine: dotted path of a function of a request")
    base_urls: tuple[Place, ...] = cosmetic(
        (), "OpenAI-compatible endpoints, with /v1, used in turn"
    )
    api_key: SecretStr | None = cosmetic(None, "key of the endpoints; or set LPFLOOP_API_KEY")
    concurrency: int = live(64, "requests in flight at endpoints", ge=1)
    timeout_s: float = live(120.0, "deadline of one request to an endpoint, in seconds", gt=0)
    patience_s: float = live(
        86_400.0, "how long an endpoint may keep a request waiting in all, in seconds", gt=0
    )
    stall_s: float = live(
        900.0, "a worker that gives no result for so long counts as hung, in seconds", gt=0
    )
    restarts: int = cosmetic(3, "times in a row that a worker is started again", ge=0)
    memory_utilization: float = cosmetic(0.9, "share of a GPU's memory that vLLM takes", gt=0, le=1)
    kv_cache_gib: int = cosmetic(1, "vLLM's cache on a CPU, in GiB", ge=1)
    cpu_threads: int | None = cosmetic(
        None, "threads on a CPU; with 1, neighbours in flight change no bit", ge=1
    )
    tensor_parallel: int = cosmetic(1, "GPUs that one model spans", ge=1)


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

    model: Place = semantic("tiny", "'tiny', or a folder with a sequence classifier of one label")
    batch_size: int = semantic(32, "conversations scored in one forward pass", ge=1)
    max_length: int = semantic(1024, "longer conversations are not scored, in tokens", ge=8)


class DPOTraining(Section):
    """Direct preference optimisation (Eq. 3)."""

    beta: float = semantic(0.1, "strength of the pull to the reference policy", gt=0)
    learning_rate: float = semantic(2e-6, "peak, after the warm-up", gt=0, le=1)
    epochs: float = semantic(1.0, "passes over the iteration's pairs", gt=0)
    batch_size: int = semantic(64, "pairs an optimizer step", ge=1)
    micro_batch_size: int = semantic(8, "pairs a forward pass on one device", ge=1)
    max_length: int = semantic(2048, "prompt and answer, in tokens", ge=16)
    warmup_ratio: float = semantic(0.1, "share of the steps that warm up", ge=0, lt=1)
    scheduler: Literal["cosine", "linear", "constant"] = semantic(
        "cosine", "learning rate after the warm-up"
    )
    sft_weight: float = semantic(0.0, "weight of the next-token loss on chosen answers", ge=0)


class SFTTraining(Section):
    """Supervised fine-tuning on a rejection-sampling set."""

    learning_rate: float = semantic(2e-5, "peak, after the warm-up", gt=0, le=1)
    epochs: float = semantic(3.0, "passes over the iteration's demonstrations", gt=0)
    batch_size: int = semantic(128, "demonstrations an optimizer step", ge=1)
    micro_batch_size: int = semantic(8, "demonstrations a forward pass on one device", ge=1)
    max_length: int = semantic(2048, "prompt and answer, in tokens", ge=16)
    warmup_ratio: float = semantic(0.03, "share of the steps that warm up", ge=0, lt=1)
    scheduler: Literal["cosine", "linear", "constant"] = semantic(
        "cosine", "learning rate after the warm-up"
    )


class TrainingConfig(Section):
    """How M_{t+1} is made from M_t and the iteration's pairs or demonstrations."""

    reference: Literal["previous", "initial"] = semantic("previous", "DPO's reference policy")
    min_pairs: int = semantic(
        64, "fewer pairs or demonstrations stop the loop before training", ge=1
    )
    dpo: DPOTraining = DPOTraining()
    sft: SFTTraining = SFTTraining()
    accelerate_config: str | None = cosmetic(None, "file for `accelerate launch --config_file`")
    processes: int = cosmetic(1, "training processes, one a device", ge=1)
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


RecipeConfig = Annotated[RLRF | RewardOnly, Field(discriminator="name")]


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
    recipe: RecipeConfig = RLRF()
    training: TrainingConfig = TrainingConfig()
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


class ConfigError(ValueError):
    """A configuration that can not be used; the message names the file and the field."""


PRESETS = Path(__file__).parent / "presets"
