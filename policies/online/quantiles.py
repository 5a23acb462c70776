"""Quark's quantiles: the quantile of each sample, and its token. Imports no model library.

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
    """Return the token that conditions on a quantile; it is written before the prompt's text."""
    return f"<|quantile-{quantile}|>"


def quantiles_of(scores: Sequence[float], count: int) -> list[int]:
    """Return the quantile of each sample: highest scores first, in `count` equal parts."""
    order = sorted(range(len(scores)), key=lambda place: -scores[place])
    found = [0] * len(scores)
    for rank, place in enumerate(order):
        found[place] = rank * count // len(scores)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A scored answer; `answer` are its tokens, `ended`: the last is an end token."""

    prompt_id: str
    answer: tuple[int, ...]
    ended: bool
    score: float


class Pool:
    """The samples to learn from: of one step, or of all steps so far.

    A growing pool is kept in the work folder, a file a step, so that a resumed training has the
    samples of earlier steps.
    """

    def __init__(self, work: Path, *, growing: bool) -> None:
        self._folder = work / POOL
        self._growing = growing
        self._steps: list[list[Sample]] = []

    def after(self, step: int, samples: Sequence[Sample]) -> list[Sample]:
        """Return the samples to learn from in a step that drew `samples`; these come last."""
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
