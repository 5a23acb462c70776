"""Splitting prompts: a run's by their use, an iteration's by their purpose.

A run trains on some prompts, makes decisions by others (dev), and is tested on the held-out ones;
they share neither a text nor a cluster. AlpacaFarm divides an iteration's train prompts once more
(Section 4.1): some for fine-tuning, some for preferences, some that only a policy sees. The parts
share no prompt, unless the layout is `same`. If a file names its prompts' parts, those are used.
"""

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Final, get_args

from ...stores.keys import SEED_BITS, derive_seed
from ...stores.records import Prompt, PromptPart, Split
from .conversations import as_json

if TYPE_CHECKING:
    from ...configs.schema import PartsConfig

TRAIN: Final = "train"
DEV: Final = "dev"
HELD_OUT: Final = "held-out"
"""The splits, and the benchmarks, of prompts that are never trained on.

The `dev` split decides inside the loop; the held-out split is the test, and is only reported on.
"""

EVAL_SET = f"{HELD_OUT}:"
"""How the benchmarks of several named sets of held-out prompts begin."""

UNTRAINED: Mapping[str, str] = {DEV: "dev", HELD_OUT: "held_out"}
"""The outcome in filter counts of rows whose prompt belongs to a measured split."""

SEED_RANGE = 2**SEED_BITS
PARTS: tuple[PromptPart, ...] = get_args(PromptPart)


def eval_set_benchmark(eval_set: str | None) -> str:
    """Return the benchmark of a named set of held-out prompts; without a name, of all of them."""
    return HELD_OUT if eval_set is None else f"{EVAL_SET}{eval_set}"


def eval_set_of(benchmark: str) -> str | None:
    """Return the name of the set of held-out prompts that a benchmark is about, if it has one."""
    return benchmark.removeprefix(EVAL_SET) if benchmark.startswith(EVAL_SET) else None


def is_measured_on(benchmark: str, split: str) -> bool:
    """Whether a benchmark is about prompts of a split: itself, or one of its named sets."""
    return benchmark == split or (split == HELD_OUT and benchmark.startswith(EVAL_SET))


def split_prompts(
    prompts: Sequence[Prompt], shares: Mapping[Split, float], seed: int
) -> list[Prompt]:
    """Mark shares of the train prompts as held out and dev, in this order.

    A split that the prompts have already is kept. A prompt's split depends only on its cluster, if
    that is given, or else on the conversation, and on the seed: it stays the same when others are
    added or removed. The exception is a file of a few lines, in which a split that would be empty
    gets a prompt.
    """
    own = {prompt.split for prompt in prompts}
    share_of: dict[Split, float] = {
        split: shares[split]
        for split in (HELD_OUT, DEV)
        if shares.get(split, 0) > 0 and split not in own
    }
    train = [prompt for prompt in prompts if prompt.split == TRAIN]
    # A text with a cluster on one row only is still on one side.
    clusters = {prompt.messages: prompt.cluster for prompt in train if prompt.cluster is not None}
    places = {p.messages: _place(p, clusters.get(p.messages), seed) for p in train}
    sides = _sides(sorted({*places.values()}), share_of)
    return [
        replace(prompt, split=sides.get(places[prompt.messages], TRAIN))
        if prompt.split == TRAIN
        else prompt
        for prompt in prompts
    ]


def _place(prompt: Prompt, cluster: str | None, seed: int) -> float:
    """Return a number between 0 and 1 that is equal for prompts that must stay together."""
    together = as_json(prompt.messages) if cluster is None else {"cluster": cluster}
    return derive_seed(seed, "split", together) / SEED_RANGE


def _sides(places: Sequence[float], shares: Mapping[Split, float]) -> dict[float, Split]:
    """Return the split of each number, without the numbers to train on.

    The last number is always trained on. If there are enough, each split has one.
    """
    found = dict[float, Split]()
    taken, share = 0, 0.0
    owed = len(shares) if len(places) > len(shares) else 0
    for split, own in shares.items():
        share += own
        owed = max(0, owed - 1)
        most = max(taken, len(places) - 1 - owed)
        end = min(max(bisect_right(places, share), taken + 1), most)
        found |= dict.fromkeys(places[taken:end], split)
        taken = end
    return found


def part_of(prompts: Sequence[Prompt], part: PromptPart, sizes: "PartsConfig") -> Sequence[Prompt]:
    """Return a part of the prompts, whose order is already random.

    If prompts name their parts, the part is all prompts that name it. With fewer prompts than the
    sizes ask for, all parts shrink in proportion; in the layout `same` each takes up to its size.
    """
    if any(prompt.part is not None for prompt in prompts):
        return [prompt for prompt in prompts if prompt.part == part]
    part_sizes = [size_of(sizes, each) for each in PARTS]
    if sizes.layout == "same":
        return prompts[: part_sizes[PARTS.index(part)]]
    ends = list(accumulate(part_sizes, initial=0))
    scale = min(1.0, len(prompts) / max(1, ends[-1]))
    cuts = [round(end * scale) for end in ends]
    place = PARTS.index(part)
    return prompts[cuts[place] : cuts[place + 1]]


def size_of(sizes: "PartsConfig", part: PromptPart) -> int:
    """Return how many prompts a part should have."""
    return {"sft": sizes.sft, "preference": sizes.preference, "unlabeled": sizes.unlabeled}[part]


def laid_out(sizes: "PartsConfig", used: Collection[str]) -> "PartsConfig":
    """Return the sizes without the parts that nothing uses, in the layout `used`."""
    if sizes.layout != "used":
        return sizes
    return sizes.model_copy(update={part: 0 for part in PARTS if part not in used})
