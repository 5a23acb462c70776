"""Reward scoring by vLLM's pooling runner, for the classifiers that it serves.

Runs inside a worker process. vLLM puts rows of different lengths together itself, without padding.
"""

# pyright: basic

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ...configs.schema import RewardConfig
from .engine import EngineError, ScoreBatch, ScoreResult, UnloadableError
from .reward_scorer import ConversationReader, require_one_label
from .scoring import ScoringPasses, Tokens
from .vllm_sleep import VLLMSleep, sleeps_here

AHEAD = 32
"""Requests worth sending ahead, as a multiple of `batch_size`."""


class VLLMScorer:
    """A sequence classifier with one label, held by vLLM."""

    name = "vllm"

    def __init__(self, model: Path, config: RewardConfig) -> None:
        from transformers import AutoConfig
        from vllm import LLM
        from vllm.platforms import current_platform

        on_cpu = current_platform.is_cpu()
        self.device = "cpu" if on_cpu else str(current_platform.get_device_name())
        own = AutoConfig.from_pretrained(str(model), local_files_only=True)
        require_one_label(model, own)
        refuse_unserved(model, own.architectures or ())
        reading = ConversationReader(model, config, own)
        self.sleeps = sleeps_here()
        own_type = "float32" if on_cpu else "bfloat16"
        self._llm = LLM(
            model=str(model),
            runner="pooling",
            convert="classify",
            dtype=own_type if config.dtype == "auto" else config.dtype,
            max_model_len=reading.longest,
            load_format="safetensors",
            config_format="hf",
            tokenizer_mode="hf",
            trust_remote_code=False,
            enable_chunked_prefill=False,
            enforce_eager=on_cpu,
            enable_sleep_mode=self.sleeps,
            seed=0,
        )
        self._rest = VLLMSleep(self._llm)
        self.window = AHEAD * config.batch_size
        self._scoring = ScoringPasses(
            tokens=reading.tokens,
            longest=reading.longest,
            ahead=self.window * reading.longest,
            passes=lambda lengths: [range(len(lengths))] if lengths else [],
            forward=self._classified,
        )

    def score(self, batches: Iterable[ScoreBatch]) -> Iterator[ScoreResult]:
        """Score every batch; a conversation that does not fit the context gets None."""
        return self._scoring.score(batches)

    def sleep(self) -> None:
        """Leave the device to others; nothing may be in flight."""
        self._rest.sleep()

    def wake(self) -> None:
        """Come back to the device; do nothing where it is awake."""
        self._rest.wake()

    def close(self) -> None:
        """Release the model."""
        del self._llm

    def _classified(self, rows: Sequence[Tokens]) -> list[float]:
        from vllm import PoolingParams
        from vllm.inputs import TokensPrompt

        outputs = self._llm.classify(
            [TokensPrompt(prompt_token_ids=list(row)) for row in rows],
            pooling_params=PoolingParams(use_activation=False),
            use_tqdm=False,
        )
        values = [float(output.outputs.probs[0]) for output in outputs]
        if not all(map(math.isfinite, values)):
            raise EngineError("the reward model gives scores that are not finite")
        return values


def refuse_unserved(model: Path, architectures: Sequence[str]) -> None:
    """Refuse a model that vLLM has no class for, or none that classifies.

    Raises:
        UnloadableError: naming the architecture.
    """
    from vllm import ModelRegistry

    served = ModelRegistry.get_supported_archs()
    named = ", ".join(architectures) or "an architecture that config.json does not name"
    causal = [name.replace("ForSequenceClassification", "ForCausalLM") for name in architectures]
    if not {*architectures, *causal} & {*served}:
        raise UnloadableError(
            f"{model}: vLLM does not serve {named}; set reward.runner to transformers"
        )
