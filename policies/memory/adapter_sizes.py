"""The sizes of low-rank adapters (Hu et al., 2021, arXiv 2106.09685), and what passes keep of them.

A matrix of `inward` x `outward` numbers gets two beside it, of `inward` x r and r x `outward`.
"""

from dataclasses import dataclass
from typing import Literal

from .shapes import FLOAT32, ModelShape

ALL = "all-linear"


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapters:
    """Adapters of one rank on the layers that `targets` names; rank 0 is none."""

    rank: int = 0
    targets: tuple[str, ...] | Literal["all-linear"] = ALL
    dropout: bool = False

    def parameters(self, shape: ModelShape) -> int:
        """Return how many numbers the adapters of a model have."""
        ends = sum(inward + outward for inward, outward in self._adapted(shape))
        return shape.layers * self.rank * ends

    def kept_bytes(self, shape: ModelShape, narrow: int) -> int:
        """Return what a layer's adapters keep of a token: what is between the two matrices.

        With dropout also what it let through, a byte a number on a GPU.
        """
        adapted = self._adapted(shape) if self.rank else []
        through = sum(inward for inward, _ in adapted) if self.dropout else 0
        flag = 1 if narrow < FLOAT32 else FLOAT32
        return len(adapted) * self.rank * narrow + through * flag

    def _adapted(self, shape: ModelShape) -> list[tuple[int, int]]:
        """Return both widths of a layer's matrices that have adapters.

        A name that is not Llama's is counted as the largest of them.
        """
        hidden, inner = shape.hidden, shape.inner
        matrices = {
            "q_proj": (hidden, shape.query_width),
            "k_proj": (hidden, shape.kv_width),
            "v_proj": (hidden, shape.kv_width),
            "o_proj": (shape.query_width, hidden),
            "up_proj": (hidden, inner),
            "down_proj": (inner, hidden),
            **({"gate_proj": (hidden, inner)} if shape.gated else {}),
        }
        if self.targets == ALL:
            return list(matrices.values())
        return [matrices.get(name, (hidden, inner)) for name in self.targets]


NO_ADAPTERS = Adapters()
