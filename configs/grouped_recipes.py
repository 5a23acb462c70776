"""The settings of the recipes that compare a prompt's answers with one another, and their rewards.

Any of these can reward an answer: the critic, the verifier, a reward model, a user's function
(`reward.model=./FILE.py:NAME`), or several of them by weight.
"""

from collections.abc import Mapping
from typing import ClassVar

from .recipes import Recipe, Varied, Weights
from .section import semantic


class RewardWeights(Weights):
    """r(x, y), a sum: the weight of each judge of an answer; a judge of weight 0 is not used."""

    verifier: float = semantic(0.0, "1 where the verifier finds an answer right, else 0", ge=0)
    critic: float = semantic(1.0, "share of the aspects the critic rates that it passes", ge=0)
    reward: float = semantic(
        0.0, "scalar of `reward.model`: a model, or a function as ./FILE.py:NAME", ge=0
    )

    @property
    def counted(self) -> Mapping[str, float]:
        """The weights above 0."""
        weights: dict[str, float] = dict(self)
        return {name: weight for name, weight in weights.items() if weight}


class Grouped(Recipe):
    """It samples groups of answers while it trains, each rewarded by the judges of `rewards`."""

    preset: ClassVar[str] = "grouped"

    rewards: RewardWeights = RewardWeights()


class GRPO(Grouped, Varied):
    """Group relative policy optimisation (DeepSeekMath, Section 4.1)."""

    name: str = semantic("grpo", "the recipe; see `lpfloop config recipes`")


class RLOO(Grouped, Varied):
    """REINFORCE, each answer against the mean of the others (Ahmadian et al., 2024)."""

    name: str = semantic("rloo", "the recipe; see `lpfloop config recipes`")


class OnlineDPO(Grouped, Varied):
    """DPO on pairs of answers drawn and judged while it trains (Guo et al., 2024)."""

    name: str = semantic("online-dpo", "the recipe; see `lpfloop config recipes`")
