"""An iteration as every verb sees it: its policy, its prompts, and how stages are planned.

A stage reads rows chunk by chunk of prompts, or all at once; its `Work` names its computation and
its input.

A policy that learned good and bad answers after different control texts answers well after the text
of the good ones (reward conditioning), so it is sampled with this text, here and in evaluations.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import polars as pl

from ...configs.recipes import Annotated, Completed, Graded, Pooled, Recipe, RewardConditioning
from ...configs.schema import ConfigError, RunConfig
from ...stores.frames import as_frame
from ...stores.journal_reader import Unit
from ...stores.keys import Json
from ...stores.lake import CANARIES
from ...stores.records import Checkpoint, Message, PromptPart
from ...stores.schemas import TABLES, RowsByType
from ..data.judged_candidates import READ
from ..data.splits import laid_out, part_of
from .handles import AnyRows, Prompts, Rows, T, chunk_prompts, join_keys
from .models import CRITIC, Served, is_rewarded
from .run import Run, Verb, Work


@dataclass(frozen=True, kw_only=True)
class Iteration:
    """The state of an iteration, M_{t-1} and its prompts, shared by all verbs."""

    run: Run
    number: int
    parent: Checkpoint
    policy: Served
    train_prompts: Prompts
    held_out: Prompts

    def prompts(self, part: PromptPart | None = None) -> Prompts:
        """Return the prompts of this iteration, x ~ D, or one part of them."""
        if part is None:
            return self.train_prompts
        config = self.run.config.prompts
        every = [prompt for chunk in self.train_prompts.chunks for prompt in chunk]
        sizes = laid_out(config.parts, self.run.parts_with(part))
        return chunk_prompts(part_of(every, part, sizes), config.chunk)

    def require(self, base: type[Recipe], verb: str) -> None:
        """Refuse a recipe whose settings lack the base class that a verb reads.

        A verb that needs answers compared or graded is also refused if a reward model is configured
        instead.

        Raises:
            ConfigError: naming the verb, and the class that is missing.
        """
        config = self.run.config
        settings = config.recipe
        if not isinstance(settings, base):
            raise ConfigError(
                f"the recipe {settings.name} calls {verb}, which needs {base.__name__} among the "
                f"bases of {type(settings).__name__}, the class of its settings"
            )
        if is_rewarded(config) and issubclass(base, Annotated | Completed | Graded | Pooled):
            raise ConfigError(
                f"the recipe {settings.name} calls {verb}, and reward.model is set: call "
                "`surrogate` or `graded_reward`, which take the reward model instead, or set "
                "reward.model to none"
            )

    def first(self, share: float) -> Prompts:
        """Return this share of the iteration's prompts, the first of its order."""
        every = [prompt for chunk in self.train_prompts.chunks for prompt in chunk]
        return chunk_prompts(every[: math.ceil(share * len(every))], self.run.config.prompts.chunk)

    def verifiable(self, prompts: Prompts) -> Prompts:
        """Return the prompts whose answers the verifier can judge."""
        can = self.run.verifier.can_verify
        kept = [prompt for chunk in prompts.chunks for prompt in chunk if can(prompt)]
        return chunk_prompts(kept, self.run.config.prompts.chunk)

    @property
    def as_judge(self) -> Served:
        """The policy as a judge: its weights, under the critic's engine settings if it has any.

        In the first iteration the critic has M_0's weights; if critic and policy have the same
        engine settings, one engine answers and judges.
        """
        has_critic = CRITIC in self.run.models.judging
        engine = self.run.config.critic.engine if has_critic else self.policy.engine
        return replace(self.policy, engine=engine, control="")

    @property
    def has_reward(self) -> bool:
        """Whether a reward model is configured, so that none need be trained."""
        return self.run.models.reward_id is not None

    @property
    def has_labels(self) -> bool:
        """Whether the run has comparisons by people, so that training uses no annotators."""
        return self.run.labels is not None

    def work(self, verb: Verb, params: Json, *handles: AnyRows) -> Work:
        """Return the work of a stage that reads these rows chunk by chunk."""
        stages = [stage for handle in handles for stage in handle.stages]
        return Work(
            verb=verb,
            params=params,
            upstream=tuple(stage.identity for stage in stages),
            reads=lambda: join_keys(self.run.store.journal, stages),
        )

    def whole(self, verb: Verb, params: Json, *handles: AnyRows) -> Work:
        """Return the work of a stage whose one unit reads all of these rows."""
        chunked = self.work(verb, params, *handles)
        return Work(
            verb=verb,
            params=params,
            upstream=chunked.upstream,
            reads=lambda: [[key for keys in chunked.reads() for key in keys]],
        )

    def rows(
        self, row_type: type[T], label: str, work: Work, make: Callable[[Unit], RowsByType]
    ) -> Rows[T]:
        """Run a stage that computes such rows without a model (`Run.make`), and return them."""
        planned = self.run.make(self.number, label, work, make)
        return Rows(row_type=row_type, stages=(planned,))

    def chunk(self, rows: Rows[T], chunk: int) -> list[T]:
        """Return the rows of a chunk, stage by stage, as soon as they are committed."""
        store = self.run.store
        return [row for key in self._keys(rows, chunk) for row in store.rows(rows.row_type, key)]

    def frame(self, rows: Rows[T], chunk: int) -> pl.DataFrame:
        """Return the chunk's rows in columns, those that pairing reads, when they are committed."""
        store = self.run.store
        columns = READ[TABLES[rows.row_type]]
        return pl.concat(
            as_frame(store.table(rows.row_type, key)).select(columns)
            for key in self._keys(rows, chunk)
        )

    def _keys(self, rows: Rows[T], chunk: int) -> Iterator[str]:
        """Yield the keys of a chunk's units, each when its rows are committed."""
        for stage in rows.stages:
            key = stage.key(self.run.store.journal, chunk)
            self.run.flow.await_unit(key)
            yield key


def served_checkpoint(run: Run, checkpoint: Checkpoint) -> Served:
    """Return how a run's checkpoint is sampled."""
    if checkpoint.parent_id is None:
        return run.models.initial
    return Served(
        name=run.models.initial.name,
        identity=checkpoint.checkpoint_id,
        location=str(run.store.folder / checkpoint.path),
        engine=run.config.policy.engine,
        canary=run.store.folder / CANARIES / checkpoint.checkpoint_id,
        control=control_of(run.config, checkpoint),
    )


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
