"""A stage of a rehearsal: what it asked, and of how many of the run's prompts it stands."""

from collections.abc import Sequence
from dataclasses import dataclass

from ...stores.journal_reader import StageId
from ..run.handles import Planned
from .prompt_sample import PromptGroup
from .stand_ins import StageNotes


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsedStage:
    """A stage with the prompts that it works on; `by_chunk`: it has a unit for each chunk.

    `upstream` are the stages from which it was planned.
    `whole`: what it asks of all prompts is noted already, and not of the sample alone.
    """

    notes: StageNotes
    group: PromptGroup
    by_chunk: bool
    planned: Planned | None = None
    upstream: Sequence[StageId] = ()
    whole: bool = False

    @property
    def scale(self) -> float:
        """How often all prompts ask what is noted."""
        return 1.0 if self.whole else self.group.scale
