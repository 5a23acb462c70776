"""The policy's sampler: an engine in a worker process that reloads the weights at each step.

The weights lie in one folder, on which the worker was opened: a worker that is restarted loads the
present ones. Whether an engine runs them is checked by its log-probabilities.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from ...configs.engines import EngineConfig, SamplingConfig
from ..engines.canary import AGREEMENT, StaleWeightsError
from ..engines.engine import Batch, Completion, EngineError, Request, Sampling
from ..trainers.step_files import RolloutDraw
from ..workers.open import engine_kind
from ..workers.supervised import WorkerEngine

NEVER = -100.0
"""What is added to the logit of a token that is not to be drawn."""

TOGETHER = 64
"""Rollouts that come back together: each is a sign of life during a long step."""

FLOAT32_AGREEMENT = 5e-5
"""Nats a token by which a right engine may differ from the trainer if both use float32.

Kernels of two libraries differ by less than 1e-6; an update moves a policy by far more than this.
"""

LOCAL = ("vllm", "transformers")


class Alive(Protocol):
    """A callback on each sign of life."""

    def __call__(self) -> None:
        """Note that sampling goes on."""
        ...


class RolloutSampler:
    """Draws rollouts from the weights in `folder`, with their tokens."""

    def __init__(self, folder: Path, config: EngineConfig, *, log: Path, alive: Alive) -> None:
        kind = engine_kind(str(folder), config)
        if kind not in LOCAL:
            raise EngineError(
                f"policy.engine.kind: {kind} cannot be given new weights, which an online method "
                f"needs at every step; choose one of {', '.join(LOCAL)}"
            )
        self._folder = folder
        self._alive = alive
        self._engine = WorkerEngine(kind, str(folder), config, log=log)

    @property
    def pid(self) -> int | None:
        """The process id of the engine's worker."""
        return self._engine.pid

    def reload(self) -> None:
        """Load the folder's present weights."""
        self._engine.reload(self._folder)
        self._alive()

    def draw(
        self, rollouts: Sequence[RolloutDraw], config: SamplingConfig, *, unsaid: Sequence[int] = ()
    ) -> list[Completion]:
        """Draw every rollout; return the completions in their order.

        The tokens in `unsaid` are never drawn.
        """
        requests = tuple(
            Request(request_id=r.candidate_id, messages=r.asked.messages, seed=r.seed)
            for r in rollouts
        )
        sampling = Sampling(
            temperature=config.temperature,
            top_p=config.top_p,
            max_tokens=config.max_tokens,
            token_ids=True,
            logit_bias=tuple((token, NEVER) for token in unsaid),
        )
        batches = (
            Batch(key=str(first), requests=requests[first : first + TOGETHER], sampling=sampling)
            for first in range(0, len(requests), TOGETHER)
        )
        found: dict[str, Completion] = {}
        for result in self._engine.generate(batches):
            found |= {c.request_id: c for c in result.completions}
            self._alive()
        return [found[r.candidate_id] for r in rollouts]

    def close(self) -> None:
        """End the worker."""
        self._engine.close()


def agreement(*, float32: bool) -> float:
    """Return the allowed mean difference from the trainer, in nats a token."""
    return FLOAT32_AGREEMENT if float32 else AGREEMENT


def refuse_stale(
    engine: Sequence[float], trainer: Sequence[float], tokens: Sequence[int], *, allowed: float
) -> float:
    """Return the difference, in nats a token, of two measurements of the same answers.

    Raises:
        StaleWeightsError: if it is too large for the same weights.
    """
    apart = sum(abs(a - b) for a, b in zip(engine, trainer, strict=True)) / max(sum(tokens), 1)
    # Written so that NaN fails, too.
    if not apart <= allowed:
        raise StaleWeightsError(
            f"the engine does not sample from the weights of this step: its log-probabilities are "
            f"{apart:.2g} nats a token off the trainer's (allowed: {allowed:g})"
        )
    return apart
