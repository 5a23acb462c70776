"""Splitting the prompts of an iteration into parts for different purposes.

As AlpacaFarm splits its instructions (Section 4.1): some for fine-tuning, some for preferences,
some that only a policy sees. The parts share no prompt, unless the layout is `same`.
"""

from collections.abc import Collection, Sequence
from itertools import accumulate
from typing import Final, Literal, get_args

from ...configs.schema import PartsConfig
from ...stores.records import Prompt

Part = Literal["sft", "preference", "unlabeled"]
DEV: Final = "dev"
HELD_OUT: Final = "held-out"
"""The splits, and the benchmarks, of prompts that are never trained on.

Those of `dev` decide inside the loop, those held out are the test: they are only reported on.
"""

PARTS: tuple[Part, ...] = get_args(Part)


def part_of(prompts: Sequence[Prompt], part: Part, sizes: PartsConfig) -> Sequence[Prompt]:
    """Return a part of the prompts, whose order is already random.

    With fewer prompts than the sizes ask for, all parts shrink in proportion; in the layout `same`
    each takes what there is.
    """
    wanted = [size_of(sizes, each) for each in PARTS]
    if sizes.layout == "same":
        return prompts[: wanted[PARTS.index(part)]]
    ends = list(accumulate(wanted, initial=0))
    scale = min(1.0, len(prompts) / max(1, ends[-1]))
    cuts = [round(end * scale) for end in ends]
    place = PARTS.index(part)
    return prompts[cuts[place] : cuts[place + 1]]


def size_of(sizes: PartsConfig, part: Part) -> int:
    """Return how many prompts a part should have."""
    return {"sft": sizes.sft, "preference": sizes.preference, "unlabeled": sizes.unlabeled}[part]


def laid_out(sizes: PartsConfig, used: Collection[str]) -> PartsConfig:
    """Return the sizes without the parts that nothing uses, in the layout `used`."""
    if sizes.layout != "used":
        return sizes
    return sizes.model_copy(update={part: 0 for part in PARTS if part not in used})
