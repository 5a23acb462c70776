"""Quark's quantiles: which sample is of which, the token that names each. No model library.

Quantile 0 is the best. Samples of equal reward keep the order in which they were drawn.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...stores.durable import make_folder, write_file

POOL = "pool"


def quantile_token(quantile: int) -> str:
    """Return the token that conditions on a quantile; it stands before the prompt's text."""
    return f"<|quantile-{quantile}|>"


def quantiles_of(scores: Sequence[float], count: int) -> list[int]:
    """Return the quantile of each sample: the scores, highest first, in `count` equal parts."""
    order = sorted(range(len(scores)), key=lambda place: -scores[place])
    found = [0] * len(scores)
    for rank, place in enumerate(order):
        found[place] = rank * count // len(scores)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """An answer that was drawn and scored; `answer` are its tokens, `ended` says if one ends it."""

    prompt_id: str
    answer: tuple[int, ...]
    ended: bool
    score: float


class Pool:
    """The samples to learn from: those of a step alone, or of all steps up to it.

    A growing pool lies in the work folder, a file a step, so that a training that is resumed has
    those of the steps before.
    """

    def __init__(self, work: Path, *, growing: bool) -> None:
        self._folder = work / POOL
        self._growing = growing
        self._steps: list[list[Sample]] = []

    def after(self, step: int, samples: Sequence[Sample]) -> list[Sample]:
        """Return the samples to learn from in a step that has drawn `samples`, these at the end."""
        if not self._growing:
            return list(samples)
        self._steps += [self._read(k) for k in range(len(self._steps) + 1, step)]
        self._steps.append(list(samples))
        rows = [asdict(sample) for sample in samples]
        write_file(make_folder(self._folder) / self._name(step), json.dumps(rows).encode())
        return [sample for drawn in self._steps for sample in drawn]

    def _read(self, step: int) -> list[Sample]:
        rows: list[dict[str, Any]] = json.loads((self._folder / self._name(step)).read_bytes())
        return [Sample(answer=tuple(row.pop("answer")), **row) for row in rows]

    def _name(self, step: int) -> str:
        return f"{step:04d}.json"
