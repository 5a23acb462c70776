# pyright: basic
"""The policy's sampler: an engine in a worker process that reloads the weights at each step.

The trainer writes the weights into one folder, on which the worker is opened, so a worker that
restarts loads the present weights. The log-probabilities that an engine reports show whether it
runs them.
"""

import copy
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import cast

from huggingface_hub import save_torch_state_dict
from torch import Tensor
from transformers import PreTrainedConfig

from ...configs.engines import EngineConfig, SamplingConfig
from ...stores.durable import make_folder
from ..engines.canary import StaleWeightsError
from ..engines.engine import (
    Batch,
    Completion,
    EngineError,
    Request,
    Sampling,
)
from ..trainers.step_files import RolloutDraw
from ..workers.engine_factory import Fit, as_it_is, engine_kind, open_engine
from ..workers.hosted_model import HostedModel
from ..workers.places import local_groups

TOGETHER = 64
"""Rollouts of a batch: each batch that comes back is a sign of life during a long step."""

LOCAL = ("vllm", "transformers")
DRAFT = "draft"
LARGEST_FILE = "5GB"


def write_weights(folder: Path, weights: dict[str, Tensor], config: PreTrainedConfig) -> None:
    """Write the present weights of a policy into the folder from which its sampler reads them.

    Each file is replaced as a whole: a sampler may have mapped the old files into its memory, where
    a shortened one is fatal.
    """
    draft = make_folder(folder / DRAFT)
    config = copy.deepcopy(config)
    config.dtype = next(iter(weights.values())).dtype
    config.save_pretrained(draft)
    pattern = "model{suffix}.safetensors"
    save_torch_state_dict(weights, draft, filename_pattern=pattern, max_shard_size=LARGEST_FILE)
    for path in sorted(draft.iterdir()):
        path.replace(folder / path.name)


class RolloutSampler:
    """Samples rollouts from the weights in `folder`, with their tokens."""

    def __init__(
        self,
        folder: Path,
        config: EngineConfig,
        *,
        log: Path,
        alive: Callable[[], None],
        fit: Fit = as_it_is,
    ) -> None:
        kind = engine_kind(str(folder), config)
        if kind not in LOCAL:
            raise EngineError(
                f"policy.engine.kind: {kind} cannot be given new weights, which an online method "
                f"needs at every step; choose one of {', '.join(LOCAL)}"
            )
        if config.place != "local":
            raise EngineError(
                "policy.engine.place: an online method needs its sampler on the trainer's "
                "machine; set local"
            )
        self._kind = kind
        self._folder = folder
        self._alive = alive
        opened = open_engine(str(folder), config, log=log, fit=fit)
        # A local engine that runs a folder's weights can load others.
        self._engine = cast("HostedModel[EngineConfig]", opened)
        self._replicas = len(local_groups(config))

    def reload(self) -> None:
        """Load the folder's present weights."""
        self._engine.reload(self._folder)
        self._alive()

    def draw(self, rollouts: Sequence[RolloutDraw], config: SamplingConfig) -> list[Completion]:
        """Sample every rollout; return the completions in their order."""
        requests = tuple(
            Request(request_id=r.candidate_id, messages=r.prompt.messages, seed=r.seed)
            for r in rollouts
        )
        sampling = Sampling(
            temperature=config.temperature,
            top_p=config.top_p,
            max_tokens=config.max_tokens,
            token_ids=True,
        )
        batches = (
            Batch(key=str(number), requests=requests[start:end], sampling=sampling)
            for number, (start, end) in enumerate(self.slices(len(requests)))
        )
        found: dict[str, Completion] = {}
        for result in self._engine.generate(batches):
            found |= {c.request_id: c for c in result.answers}
            self._alive()
        return [found[r.candidate_id] for r in rollouts]

    def slices(self, count: int) -> list[tuple[int, int]]:
        """Return the start and end of each batch of `count` rollouts; one replica samples a batch.

        Each of several replicas gets two batches of about equal size. transformers gets the same
        batches with any number of replicas, because its last bits depend on the batch.
        """
        if self._replicas == 1 or self._kind == "transformers":
            return [(first, min(first + TOGETHER, count)) for first in range(0, count, TOGETHER)]
        parts = min(count, max(-(-count // TOGETHER), 2 * self._replicas))
        return list(pairwise(count * part // parts for part in range(parts + 1)))

    def batch_numbers(self, count: int) -> list[int]:
        """Return the number of each rollout's batch; all 0 if there is one replica."""
        if self._replicas == 1:
            return [0] * count
        return [n for n, (start, end) in enumerate(self.slices(count)) for _ in range(start, end)]

    def close(self) -> None:
        """End the worker."""
        self._engine.close()


def refuse_stale(
    engine: Sequence[float],
    trainer: Sequence[float],
    tokens: Sequence[int],
    batches: Sequence[int],
    *,
    allowed: float,
) -> float:
    """Return the difference, in nats per token, of two measurements of the same answers.

    `batches` has the number of each answer's batch, which one replica sampled. Each batch is
    checked separately, so that fresh replicas do not hide a stale one.

    Raises:
        StaleWeightsError: if it is too large for the same weights.
    """
    apart = [abs(a - b) for a, b in zip(engine, trainer, strict=True)]
    for batch in sorted(set(batches)):
        own = [place for place, number in enumerate(batches) if number == batch]
        mean = sum(apart[place] for place in own) / max(sum(tokens[place] for place in own), 1)
        # Written so that NaN fails, too.
        if not mean <= allowed:
            raise StaleWeightsError(
                f"the engine does not sample from the weights of this step: its log-probabilities "
                f"are {mean:.2g} nats a token off the trainer's (allowed: {allowed:g})"
            )
    return sum(apart) / max(sum(tokens), 1)
