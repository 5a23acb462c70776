"""Control texts: put before a prompt to tell the policy how good its answer is to be.

A policy that learned good and bad answers after different texts answers well after the text of
the good ones (reward conditioning). So it is sampled with this text, here and in evaluations. The
same is true of a policy that learned each quantile of the reward after its own token (Quark).
"""

from ...configs.recipes import Quark, RewardConditioning
from ...configs.schema import RunConfig
from ...policies.engines.chat import add_control
from ...policies.online.quantiles import quantile_token
from ...stores.records import Checkpoint

__all__ = ["add_control", "control_of", "control_text"]


def control_text(text: str) -> str:
    """Return a configured text as a line to put before a prompt."""
    return f"{text}\n"


def control_of(config: RunConfig, checkpoint: Checkpoint) -> str:
    """Return the control text under which a checkpoint that was trained here is sampled."""
    recipe = config.recipe
    if checkpoint.recipe != recipe.name:
        return ""
    if isinstance(recipe, RewardConditioning):
        return control_text(recipe.positive)
    if isinstance(recipe, Quark) and config.training.quark.train_on == "all":
        return quantile_token(0)
    return ""
