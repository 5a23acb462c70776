"""The policy's sampler: an engine in a worker process that reloads the weights at each step.

The weights lie in one folder, on which the worker was opened: a worker that is restarted loads the
present ones. Whether an engine runs them is checked by its log-probabilities.
"""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Protocol, cast

from ...configs.engines import EngineConfig, SamplingConfig
from ..engines.canary import AGREEMENT, StaleWeightsError
from ..engines.engine import (
    Batch,
    Completion,
    EngineError,
    ReloadableEngine,
    Request,
    Sampling,
)
from ..trainers.step_files import RolloutDraw
from ..workers.open import Fit, as_it_is, engine_kind, open_engine
from ..workers.places import engine_groups

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

    def __init__(
        self, folder: Path, config: EngineConfig, *, log: Path, alive: Alive, fit: Fit = as_it_is
    ) -> None:
        kind = engine_kind(str(folder), config)
        if kind not in LOCAL:
            raise EngineError(
                f"policy.engine.kind: {kind} cannot be given new weights, which an online method "
                f"needs at every step; choose one of {', '.join(LOCAL)}"
            )
        if config.place != "local":
            raise EngineError(
                "policy.engine.place: an online method needs its sampler beside the training; set "
                "local"
            )
        self._kind = kind
        self._folder = folder
        self._alive = alive
        opened = open_engine(str(folder), config, log=log, fit=fit)
        # What runs a folder's weights here can be given others.
        self._engine = cast("ReloadableEngine", opened)
        self._replicas = len(engine_groups(config))

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
            Batch(key=str(number), requests=requests[start:end], sampling=sampling)
            for number, (start, end) in enumerate(self.slices(len(requests)))
        )
        found: dict[str, Completion] = {}
        for result in self._engine.generate(batches):
            found |= {c.request_id: c for c in result.completions}
            self._alive()
        return [found[r.candidate_id] for r in rollouts]

    def slices(self, count: int) -> list[tuple[int, int]]:
        """Return where the slices of so many rollouts begin and end; one replica draws a slice.

        Of several replicas each gets two, of about equal lengths, unless what is drawn side by side
        decides the last bits.
        """
        if self._replicas == 1 or self._kind == "transformers":
            return [(first, min(first + TOGETHER, count)) for first in range(0, count, TOGETHER)]
        parts = min(count, max(-(-count // TOGETHER), 2 * self._replicas))
        return list(pairwise(count * part // parts for part in range(parts + 1)))

    def drawn_together(self, count: int) -> list[int]:
        """Return, for each of so many rollouts, a number that those of other replicas do not have.

        All have the same one if there is one replica.
        """
        if self._replicas == 1:
            return [0] * count
        return [n for n, (start, end) in enumerate(self.slices(count)) for _ in range(start, end)]

    def close(self) -> None:
        """End the worker."""
        self._engine.close()


def agreement(*, float32: bool) -> float:
    """Return the allowed mean difference from the trainer, in nats a token."""
    return FLOAT32_AGREEMENT if float32 else AGREEMENT


def refuse_stale(
    engine: Sequence[float],
    trainer: Sequence[float],
    tokens: Sequence[int],
    together: Sequence[int],
    *,
    allowed: float,
) -> float:
    """Return the difference, in nats a token, of two measurements of the same answers.

    `together` has the same number for answers of the same replica: those of others do not make up
    for a stale one's.

    Raises:
        StaleWeightsError: if it is too large for the same weights.
    """
    apart = [abs(a - b) for a, b in zip(engine, trainer, strict=True)]
    for group in sorted(set(together)):
        own = [place for place, number in enumerate(together) if number == group]
        mean = sum(apart[place] for place in own) / max(sum(tokens[place] for place in own), 1)
        # Written so that NaN fails, too.
        if not mean <= allowed:
            raise StaleWeightsError(
                f"the engine does not sample from the weights of this step: its log-probabilities "
                f"are {mean:.2g} nats a token off the trainer's (allowed: {allowed:g})"
            )
    return sum(apart) / max(sum(tokens), 1)
