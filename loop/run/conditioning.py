"""Control texts: put before a prompt to tell the policy how good its answer is to be.

A policy that learned good and bad answers after different texts answers well after the text of
the good ones (reward conditioning). So it is sampled with this text, here and in evaluations.
"""

from collections.abc import Sequence
from dataclasses import replace

from ...configs.recipes import RewardConditioning
from ...configs.schema import RunConfig
from ...stores.records import Checkpoint, Message


def add_control(messages: Sequence[Message], control: str) -> tuple[Message, ...]:
    """Put a control text, which names the wanted quality, before the user's last message.

    An empty text has no effect.
    """
    turns = tuple(messages)
    if not control:
        return turns
    last = max((n for n, turn in enumerate(turns) if turn.role == "user"), default=len(turns) - 1)
    controlled = replace(turns[last], content=control + turns[last].content)
    return (*turns[:last], controlled, *turns[last + 1 :])


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
    return ""
