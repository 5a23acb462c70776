"""The gain if two policies meet the same annotator and the same order on an instruction.

Two policies answer the same instructions, and one annotator of a pool of thirteen compares each
answer with a reference's, in one of both orders. Drawn by the pair, the two policies meet
different annotators and orders; drawn by the instruction, the same ones. The annotators' tastes
are the tiny world's (loop/tiny/annotators.py), five strong, four medium and four weak, as in
AlpacaFarm's pool; the quality of answers is simulated. Prints the standard deviation, over many
draws, of the difference of two win-rates.

    python benchmarks/shared_annotators.py
"""

import argparse
from dataclasses import dataclass
from statistics import stdev

import numpy as np
from numpy.typing import NDArray

from lpfloop.loop.tiny.annotators import TASTES

Numbers = NDArray[np.float64]
POOL = (*[TASTES["strong"]] * 5, *[TASTES["medium"]] * 4, *[TASTES["weak"]] * 4)
APART = np.array([0.5, 1.0, 0.7])
"""Spread of answers in correctness, style and length, in standard deviations."""
ALIKE = (0.0, 0.5, 0.9)
"""The correlation of two policies' answers."""


@dataclass(frozen=True, kw_only=True)
class Met:
    """The annotator of each instruction, and whether the reference's answer is shown second."""

    annotators: NDArray[np.int64]
    swapped: NDArray[np.bool_]

    @classmethod
    def drawn(cls, prompts: int, generator: np.random.Generator) -> "Met":
        """Draw annotators and orders for so many instructions."""
        return cls(
            annotators=generator.integers(len(POOL), size=prompts),
            swapped=generator.random(prompts) < 1 / 2,
        )


@dataclass(frozen=True, kw_only=True)
class Judges:
    """The pool's difference from the tiny world's: errors times `noise`, and more `position`."""

    name: str
    noise: float = 1.0
    position: float = 0.0


KINDS = (
    Judges(name="as in the tiny world"),
    Judges(name="that like the first place", position=1.0),
    Judges(name="of temperature 0", noise=0.0),
    Judges(name="of temperature 0 that like the first place", noise=0.0, position=1.0),
)


def won(judges: Judges, worth: Numbers, met: Met, generator: np.random.Generator) -> float:
    """Return the win-rate of answers whose lead over the reference's in each aspect is `worth`."""
    tastes = [POOL[number] for number in met.annotators]
    weights = np.array([[t.correct, t.style, t.longer] for t in tastes])
    first = np.array([t.shown_first + judges.position for t in tastes])
    errors = judges.noise * np.array([t.noise for t in tastes])
    lead = (weights * worth).sum(axis=1) + np.where(met.swapped, first, -first)
    return float((lead + errors * generator.logistic(size=len(worth)) > 0).mean())


def spread(judges: Judges, alike: float, prompts: int, draws: int, *, shared: bool) -> float:
    """Return the standard deviation of the difference of two win-rates, in points.

    The two policies' answers have the correlation `alike`, and are the same in each draw.
    """
    generator = np.random.default_rng(1)
    common, *own = generator.normal(size=(3, prompts, 3))
    both = [APART * (alike**0.5 * common + (1 - alike) ** 0.5 * other) for other in own]
    found = list[float]()
    for _ in range(draws):
        first = Met.drawn(prompts, generator)
        second = first if shared else Met.drawn(prompts, generator)
        before, after = (
            won(judges, worth, met, generator)
            for worth, met in zip(both, (first, second), strict=True)
        )
        found.append(100 * (after - before))
    return stdev(found)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=330)
    parser.add_argument("--draws", type=int, default=500)
    options = parser.parse_args()
    print("| annotators | answers alike | by the pair | by the instruction | narrower by |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for judges in KINDS:
        for alike in ALIKE:
            apart, together = (
                spread(judges, alike, options.prompts, options.draws, shared=shared)
                for shared in (False, True)
            )
            print(
                f"| {judges.name} | {alike} | {apart:.2f} | {together:.2f} | "
                f"{1 - together / apart:.0%} |"
            )


if __name__ == "__main__":
    main()
