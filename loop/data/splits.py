"""Splitting the prompts of an iteration into parts for different purposes.

As AlpacaFarm splits its instructions (Section 4.1): some for fine-tuning, some for preferences,
some that only a policy sees. The parts share no prompt.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Literal, get_args

from ...configs.schema import PartsConfig
from ...stores.records import Prompt

Part = Literal["sft", "preference", "unlabeled"]
HELD_OUT = "held-out"
"""The split, and the benchmark, of prompts that are never trained on."""

PARTS: tuple[Part, ...] = get_args(Part)


def part_of(prompts: Sequence[Prompt], part: Part, sizes: PartsConfig) -> Sequence[Prompt]:
    """Return a part of the prompts, whose order is already random.

    With fewer prompts than the sizes ask for, all parts shrink in proportion.
    """
    ends = list(accumulate((sizes.sft, sizes.preference, sizes.unlabeled), initial=0))
    scale = min(1.0, len(prompts) / max(1, ends[-1]))
    cuts = [round(end * scale) for end in ends]
    place = PARTS.index(part)
    return prompts[cuts[place] : cuts[place + 1]]
