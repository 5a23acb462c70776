"""How often a verdict errs, and how often it sees a gain, in simulated runs.

A world is a set of prompts in clusters. The probability that a policy solves a prompt depends on
the prompt, on the policy's habit in the prompt's cluster, drawn for each policy, and on chance. In
a null run no policy is better than another, so every "better" is false. The script compares each
of its iterations with M_0, with the one before, and with the best so far by these same noisy
results, at the level of its look. For power, one policy is better by five points.

    python benchmarks/verdicts.py --runs 1000
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from lpfloop.loop.lake.statistics.decisions import Decision, PairedResults, decide, level_of_look

ERROR_RATE, WORTHWHILE = 0.05, 0.01
ITERATIONS = 5
AGAINST = ("initial", "previous", "best")
ANY = "any"
Numbers = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class World:
    """Prompts in clusters of these sizes; `hardness` and `habit` are spreads, in logits.

    Large hardness: most prompts are always or never solved, so few change. Large habit: prompts of
    a cluster change together. A result is the mean of `answers` answers.
    """

    name: str
    sizes: Sequence[int]
    hardness: float
    habit: float
    answers: int = 1

    @cached_property
    def clusters(self) -> NDArray[np.int64]:
        """The cluster of each prompt."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    @cached_property
    def names(self) -> list[str]:
        """The names of the clusters."""
        return [str(number) for number in self.clusters]

    def policies(self, generator: np.random.Generator, gains: Sequence[float]) -> Numbers:
        """Return the results of policies, each better by so many logits: a row for each."""
        about = self.clusters
        hard = self.hardness * generator.normal(size=len(about))
        habits = self.habit * generator.normal(size=(len(gains), len(self.sizes)))
        solved = 1 / (1 + np.exp(-(hard + habits[:, about] + np.array(gains)[:, None])))
        return generator.binomial(self.answers, solved) / self.answers


def sizes(kind: str, seed: int = 0) -> list[int]:
    """Return the sizes of clusters: of real texts, of the tiny world, or very unequal ones."""
    generator = np.random.default_rng(seed)
    if kind == "texts":
        return [int(size) for size in generator.integers(1, 6, size=200)]
    if kind == "unequal":
        return [max(1, round(600 * share)) for share in generator.dirichlet(np.full(20, 1.5))]
    return {
        "prompts": [1] * 600,
        "stories": [16] * 14,
        "tiny": [16] * 14 + [3] * 28 + [2] * 68 + [24] * 9,
    }[kind]


NULL = (
    World(name="600 single prompts", sizes=sizes("prompts"), hardness=4, habit=0),
    World(name="600 single prompts, few change", sizes=sizes("prompts"), hardness=40, habit=0),
    World(name="texts of 1 to 5 prompts", sizes=sizes("texts"), hardness=4, habit=1),
    World(name="the tiny world: 660 prompts", sizes=sizes("tiny"), hardness=2, habit=2),
    World(name="its 14 stories alone", sizes=sizes("stories"), hardness=2, habit=2),
    World(name="20 very unequal clusters", sizes=sizes("unequal"), hardness=3, habit=1),
)
POWER = (
    *(
        World(name=f"{name}, {told}", sizes=sizes(kind), hardness=hardness, habit=habit)
        for name, kind, habit in (("single prompts", "prompts", 0), ("texts of 1 to 5", "texts", 1))
        for told, hardness in (("settled", 16), ("mostly settled", 9), ("unsettled", 4))
    ),
    World(
        name="texts of 1 to 5, unsettled, 4 answers",
        sizes=sizes("texts"),
        hardness=4,
        habit=1,
        answers=4,
    ),
    World(name="the tiny world, strong habits", sizes=sizes("tiny"), hardness=2, habit=2),
    World(name="its 14 stories, strong habits", sizes=sizes("stories"), hardness=2, habit=2),
)


def decided(world: World, before: Numbers, after: Numbers, level: float) -> Decision:
    """Return the verdict on two policies."""
    results = PairedResults(before=before.tolist(), after=after.tolist(), clusters=world.names)
    return decide(results, alpha=level, worthwhile=WORTHWHILE)


def null_run(world: World, generator: np.random.Generator) -> dict[str, bool]:
    """Return by compared policy whether any iteration of a null run was called better than it."""
    results = world.policies(generator, [0.0] * (ITERATIONS + 1))
    found: dict[str, list[bool]] = {against: [] for against in AGAINST}
    for look in range(1, ITERATIONS + 1):
        best = int(results[:look].mean(axis=1).argmax())
        level = level_of_look(ERROR_RATE, look)
        better = {
            other: decided(world, results[other], results[look], level).answer == "better"
            for other in {0, look - 1, best}
        }
        for against, other in zip(AGAINST, (0, look - 1, best), strict=True):
            found[against].append(better[other])
    return {against: any(answers) for against, answers in found.items()}


def null_runs(world: World, runs: int, seed: int = 0) -> dict[str, float]:
    """Return the share of runs without a gain in which a verdict found one, by compared policy."""
    generator = np.random.default_rng(seed)
    found = [null_run(world, generator) for _ in range(runs)]
    shares = {against: fmean(run[against] for run in found) for against in AGAINST}
    return shares | {ANY: fmean(any(run.values()) for run in found)}


def logits_of(world: World, points: float) -> float:
    """Return the logits that make a policy better by so much, on average over many prompts."""
    spread = float(np.hypot(world.hardness, world.habit))
    hard = spread * np.random.default_rng(1).normal(size=100_000)
    low, high = 0.0, 20.0
    for _ in range(20):
        middle = (low + high) / 2
        gained = float(np.mean(1 / (1 + np.exp(-hard - middle)) - 1 / (1 + np.exp(-hard))))
        low, high = (middle, high) if gained < points else (low, middle)
    return high


@dataclass(frozen=True, kw_only=True)
class Power:
    """The share of detected gains at each look, and the number of changed prompts."""

    changed: float
    seen: Sequence[float]
    undecided: float


def power(
    world: World, runs: int, *, points: float = 0.05, seed: int = 0, looks: int = ITERATIONS
) -> Power:
    """Return how often the verdict detects a policy that is better by so much."""
    generator = np.random.default_rng(seed)
    logits = logits_of(world, points)
    levels = [level_of_look(ERROR_RATE, look) for look in range(1, looks + 1)]
    pairs = [world.policies(generator, [0.0, logits]) for _ in range(runs)]
    found = [[decided(world, *pair, level).answer for level in levels] for pair in pairs]
    return Power(
        changed=fmean(float((after != before).mean()) for before, after in pairs),
        seen=[fmean(row[at] == "better" for row in found) for at in range(looks)],
        undecided=fmean(row[0] == "undecided" for row in found),
    )


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print(f"{given.runs} runs of {ITERATIONS} iterations without a gain, error rate {ERROR_RATE}:")
    print("share in which one was called better than ...\n")
    print(f"| prompts | {' | '.join((*AGAINST, ANY))} |\n|{' --- |' * 5}")
    for world in NULL:
        found = null_runs(world, given.runs, given.seed)
        print(f"| {world.name} | {' | '.join(f'{share:.1%}' for share in found.values())} |")
    print(
        f"\n{given.runs} pairs of policies, one better by 5 points: share in which this was seen\n"
    )
    looks = " | ".join(f"look {look}" for look in range(1, ITERATIONS + 1))
    print(f"| prompts | number | changed | {looks} | undecided |\n|{' --- |' * 9}")
    for world in POWER:
        seen = power(world, given.runs, seed=given.seed)
        shares = " | ".join(f"{share:.0%}" for share in (seen.changed, *seen.seen, seen.undecided))
        print(f"| {world.name} | {sum(world.sizes)} | {shares} |")


if __name__ == "__main__":
    main()
