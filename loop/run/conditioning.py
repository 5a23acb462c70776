"""Control texts: what stands before a prompt to say how good the answer is to be.

A policy that learned good and bad answers behind different texts answers well behind the text of
the good ones (reward conditioning), so that is how it is sampled, here and when it is evaluated. So
does one that learned every quantile of the reward behind a token (Quark).
"""

from ...configs.recipes import Quark, RewardConditioning
from ...configs.schema import RunConfig
from ...policies.engines.chat import conditioned
from ...policies.online.quantiles import quantile_token
from ...stores.records import Checkpoint

__all__ = ["conditioned", "control_of", "control_text"]


def control_text(text: str) -> str:
    """Return a configured text as it stands before a prompt: on a line of its own."""
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
