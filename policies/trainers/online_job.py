"""What a method needs that samples while it trains: how it samples, who rewards its answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ...configs.engines import EngineConfig, SamplingConfig
from ...configs.schema import RewardConfig

RewardSource = Literal["verifier", "critic", "reward"]
"""Who rewards an online method's answers; `reward` is a reward model, or the user's function."""

BY_REWARD: Mapping[RewardSource, float] = {"reward": 1.0}
"""The reward model alone rewards answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineJob:
    """What an online method needs besides its models: how it samples, what it writes into rows.

    The rollouts' ids depend on `identity`, step, prompt and number; every seed derives from
    `root_seed` and such an id. `policy`, `model` and `reward_id` are what the rows name as their
    policy (M_{t-1}: a rollout's step says how often it has been updated since), its path, and the
    reward model. `engine` runs the policy while it samples, `reward` says how the reward model
    reads.
    `function` is the place of the user's own reward function, if that stands in for a reward model.
    An answer's reward is the sum of its scores by `weights`. The trainer has those of `reward`; for
    the others it asks its parent (`reward_exchange`).
    """

    iteration: int
    identity: str
    root_seed: int
    policy: str
    model: str
    reward_id: str
    sampling: SamplingConfig
    engine: EngineConfig
    reward: RewardConfig
    function: str | None = None
    weights: Mapping[RewardSource, float] = field(default_factory=lambda: dict(BY_REWARD))

    @property
    def sources(self) -> tuple[RewardSource, ...]:
        """Who has a say in an answer's reward."""
        return tuple(source for source, weight in self.weights.items() if weight)

    @property
    def asked_sources(self) -> tuple[RewardSource, ...]:
        """Those of them whom the trainer's parent asks."""
        return tuple(source for source in self.sources if source != "reward")


def online_fields(online: OnlineJob) -> dict[str, Any]:
    """Return what `job.json` says of it."""
    return {
        "iteration": online.iteration,
        "identity": online.identity,
        "root_seed": online.root_seed,
        "policy": online.policy,
        "model": online.model,
        "reward_id": online.reward_id,
        "sampling": online.sampling.model_dump(mode="json"),
        # A local engine needs no key, and keys are never written to files.
        "engine": online.engine.model_dump(mode="json", exclude={"api_key"}),
        "reward": online.reward.model_dump(mode="json"),
        **({} if online.function is None else {"function": online.function}),
        **({} if online.weights == BY_REWARD else {"weights": dict(online.weights)}),
    }


def read_online(fields: dict[str, Any]) -> OnlineJob:
    """Read what `online_fields` returned."""
    sections: dict[str, Any] = {
        "sampling": SamplingConfig.model_validate(fields["sampling"]),
        "engine": EngineConfig.model_validate(fields["engine"]),
        "reward": RewardConfig.model_validate(fields["reward"]),
    }
    return OnlineJob(**{**fields, **sections})
