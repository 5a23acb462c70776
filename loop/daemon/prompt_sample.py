"""The prompts that represent all of a run's in its rehearsal.

Prompts that serve one purpose are a group: a part of an iteration's prompts, the rest of them, the
dev prompts, or those held out. A few of each group are taken, evenly over tasks and lengths, so
that their cost times their share is about the cost of all. A small run is rehearsed as it is.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from ...configs.schema import PartsConfig, RunConfig
from ...stores.records import Prompt
from ..data.filter_counts import KEPT, keeps
from ..data.prompt_rules import Rules
from ..data.splits import DEV, HELD_OUT, PARTS, is_measured_on, laid_out, part_of
from ..run.completers import completers_of
from ..run.handles import Prompts, chunk_prompts
from ..run.judges import Panels
from ..stages.select_prompts import Suitable
from .iterations import EvalSets, deciding, order_prompts

GROUP, SHARED = 4, 32
"""The most prompts that represent a group: more if several models share the work on them."""
WHOLE = 20
"""Runs with so many prompts or fewer, dev and held-out ones included, are rehearsed as they are."""
CHUNKS = 2
"""Chunks of a group: stages that work by chunks differ from stages that read all rows at once."""
REST, ALL = "rest", "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptGroup:
    """Prompts that serve one purpose: how many there are, and the sample that represents them."""

    name: str
    total: int
    sample: tuple[Prompt, ...]

    @property
    def scale(self) -> float:
        """How many prompts each of the sample represents."""
        return self.total / len(self.sample) if self.sample else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSample:
    """The groups of a run's prompts; `chunk` is how many of the sample a unit works on.

    `train` counts the prompts that may be trained on, before any filter, `left_out` those that a
    rule refuses, by the rule. `parts_of` names the groups that each part of the prompts is made of.
    """

    groups: Mapping[str, PromptGroup]
    layout: Literal["disjoint", "used", "same"]
    parts_of: Mapping[str, tuple[str, ...]]
    chunk: int
    train: int
    left_out: Mapping[str, int]

    @property
    def suitable(self) -> int:
        """How many prompts no rule refuses."""
        return self.train - sum(self.left_out.values())

    @property
    def prompts(self) -> list[Prompt]:
        """The prompts of the rehearsal, of all splits."""
        return [prompt for group in self.groups.values() for prompt in group.sample]

    @property
    def share(self) -> PromptGroup:
        """All prompts of an iteration, as one group."""
        own = [
            group
            for name, group in self.groups.items()
            if name != DEV and not is_measured_on(name, HELD_OUT)
        ]
        return join_groups(ALL, own)

    @property
    def tested(self) -> PromptGroup:
        """All held-out prompts, as one group, however many sets there are."""
        sets = [group for name, group in self.groups.items() if is_measured_on(name, HELD_OUT)]
        return join_groups(HELD_OUT, sets)

    @property
    def parts(self) -> PartsConfig:
        """The sizes by which the sample falls into the parts that it was taken from."""
        sizes: dict[str, Any] = {group.name: len(group.sample) for group in self.parted}
        return PartsConfig(layout=self.layout, **sizes)

    @property
    def parted(self) -> list[PromptGroup]:
        """The prompts of each part, as one group."""
        made = {
            part: [self.groups[name] for name in names] for part, names in self.parts_of.items()
        }
        return [join_groups(part, own) for part, own in made.items()]

    def chunks(self, group: PromptGroup) -> Prompts:
        """Return the sample of a group as a stage gets it."""
        return chunk_prompts(group.sample, self.chunk)


def join_groups(name: str, groups: Sequence[PromptGroup]) -> PromptGroup:
    """Return groups as one."""
    return PromptGroup(
        name=name,
        total=sum(group.total for group in groups),
        sample=tuple(prompt for group in groups for prompt in group.sample),
    )


def sample_prompts(
    config: RunConfig, prompts: Sequence[Prompt], used: Collection[str]
) -> PromptSample:
    """Return a sample of a run's prompts, the same each time; the recipe uses these parts."""
    train = order_prompts(prompts, "train", config.seed)
    rules = Rules.from_config(config.prompts.rules)
    fates = rules.fates(train, prompts) if rules.on else [KEPT] * len(train)
    kept = [prompt for prompt, fate in zip(train, fates, strict=True) if keeps(fate)]
    share = Suitable(prompts=kept).share(1, config.prompts.per_iteration) if kept else []
    sizes = laid_out(config.prompts.parts, used)
    parts, parts_of = _group(share, sizes)
    taken = sum(map(len, parts.values()))
    tested = EvalSets.of(config, prompts)
    groups = {**parts, REST: share[taken:], DEV: deciding(config, prompts), **tested.sets}
    whole = sum(map(len, groups.values())) <= WHOLE
    size = WHOLE if whole else SHARED if _is_shared(config) else GROUP
    return PromptSample(
        groups={
            name: PromptGroup(name=name, total=len(group), sample=tuple(spread(group, size)))
            for name, group in groups.items()
        },
        layout=sizes.layout,
        parts_of=parts_of,
        chunk=config.prompts.chunk if whole else min(config.prompts.chunk, size // CHUNKS),
        train=len(train),
        left_out=dict(Counter(fate for fate in fates if not keeps(fate))),
    )


def _is_shared(config: RunConfig) -> bool:
    """Whether several models complete the prompts, or several annotators compare the answers."""
    completers, panels = completers_of(config), Panels.of(config)
    own = [p for p in (panels.training, panels.evaluation) if p is not None]
    return bool(completers and completers.others) or any(len(p.annotators) > 1 for p in own)


def _group(
    share: list[Prompt], sizes: PartsConfig
) -> tuple[dict[str, list[Prompt]], dict[str, tuple[str, ...]]]:
    """Return groups of an iteration's prompts without overlap, and which of them are in a part."""
    if sizes.layout != "same" or any(prompt.part is not None for prompt in share):
        parts = {part: list(part_of(share, part, sizes)) for part in PARTS}
        return parts, {part: (part,) for part in PARTS}
    ends = {part: len(part_of(share, part, sizes)) for part in PARTS}
    edges = sorted({*ends.values()} - {0})
    names = {end: f"first {end}" for end in edges}
    bands = {names[end]: share[start:end] for start, end in pairwise([0, *edges])}
    return bands, {
        part: tuple(names[edge] for edge in edges if edge <= end) for part, end in ends.items()
    }


def spread(prompts: Sequence[Prompt], count: int) -> list[Prompt]:
    """Return so many of the prompts, evenly over their tasks and lengths, in their order."""
    if len(prompts) <= count:
        return list(prompts)
    places = sorted(range(len(prompts)), key=lambda place: (*_kind(prompts[place]), place))
    middles = ((2 * number + 1) * len(places) // (2 * count) for number in range(count))
    return [prompts[place] for place in sorted(places[middle] for middle in middles)]


def _kind(prompt: Prompt) -> tuple[str, int]:
    return prompt.task, sum(len(message.content) for message in prompt.messages)
