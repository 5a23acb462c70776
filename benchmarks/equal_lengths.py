"""The error of length-controlled win-rates, with a free and with a fixed slope.

No package index has AlpacaEval's comparisons by instruction, so the script simulates them: models
win by AlpacaEval's logistic model, with coefficients as published, on 805 instructions, whose
difficulty correlates with the answers' lengths by a given amount (correlation). The true figure is
the published model's, as on AlpacaEval's board.

    python benchmarks/equal_lengths.py --models 60

takes coefficients from the published summary (loop/evaluation/length_control.py). With
`--weights` (the file of coefficients named in length_control.py) and `--board` (of the package
alpaca_eval, leaderboards/data_AlpacaEval_2/weighted_alpaca_eval_gpt4_turbo_leaderboard.csv) it
takes the coefficients of the board's models, and the published figures as the true ones.

`--pandalm` (PandaLM's published file of pairs with verdicts) prints instead how much its judges
like length: one phi for all pairs of models, without difficulty, next to the prior's.
"""

import argparse
import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import NDArray

from lpfloop.loop.evaluation.length_control import (
    HIGHEST,
    LINE,
    LOWEST,
    MODELS,
    SPREAD,
    Compared,
    LengthControlled,
    fit_logistic,
    information,
    length_controlled,
    published_slope,
    sigmoid,
)

Numbers = NDArray[np.float64]
INSTRUCTIONS = 805
DIFFICULTY = 1.45
"""The standard deviation of AlpacaEval's difficulty."""
BANDS = ((0, 10), (10, 20), (20, 40), (40, 100))
CORRELATIONS = (0.0, 0.3, 0.5)
PSI = (0.92, 0.17)
"""Mean and standard deviation of the published psi."""
CHARACTERS = 1000
"""The fit uses lengths in units of their spread only."""
HALVINGS = 40
JUDGES = ("gpt_result", "pandalm_result", "annotator1", "annotator2", "annotator3")
WINS: Mapping[str | int, float] = {"1": 0.0, "2": 1.0, "Tie": 0.5, 1: 0.0, 2: 1.0, 0: 0.5}
"""Score of the second answer by verdict; other verdicts, such as `garbage`, do not count."""
METHODS = ("win-rate", "free slope", "held slope")


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A model's coefficients, and its published win-rates in percent."""

    theta: float
    phi: float
    psi: float
    win_rate: float
    controlled: float


def drawn(count: int, generator: np.random.Generator) -> Iterator[Judged]:
    """Yield models with coefficients drawn from the published ones' distribution."""
    points, weights = _grid()
    start, slope = LINE
    lowest, highest = (np.log(p / (1 - p)) for p in (LOWEST, HIGHEST))
    for logit in np.linspace(lowest, highest, count):
        phi = start + slope * logit + generator.normal(0, MODELS)
        psi = generator.normal(*PSI)
        # A published theta makes 0.74 * theta - 0.06 the logit at equal lengths.
        theta = (logit + 0.35 * phi * max(0.0, 0.3 - 0.2 * logit) + 0.06) / 0.74
        rate = float(sigmoid(theta + psi * DIFFICULTY * points) @ weights)
        yield Judged(
            theta=float(theta),
            phi=float(phi),
            psi=float(psi),
            win_rate=100 * float(sigmoid(np.array([logit]))[0]),
            controlled=100 * rate,
        )


def published(weights: Path, board: Path) -> Iterator[Judged]:
    """Yield the models that are both in a file of coefficients and on a board."""
    shown = {row[""]: row for row in csv.DictReader(board.read_text().splitlines())}
    for row in csv.DictReader(weights.read_text().splitlines()):
        name, length, psi, theta = list(row.values())[:4]
        found = shown.get(name, {})
        if found.get("length_controlled_winrate") and float(length):
            yield Judged(
                theta=float(theta),
                phi=-float(length),  # AlpacaEval subtracts the model's length from the reference's.
                psi=float(psi),
                win_rate=float(found["win_rate"]),
                controlled=float(found["length_controlled_winrate"]),
            )


def errors(
    judged: Judged, correlation: float, generator: np.random.Generator
) -> Mapping[str, float]:
    """Return the error of each method's figure, on one draw of instructions."""
    apart = generator.normal(size=INSTRUCTIONS)
    other = generator.normal(size=INSTRUCTIONS)
    easy = DIFFICULTY * (correlation * apart + np.sqrt(1 - correlation**2) * other)
    longer = CHARACTERS * (apart + _longer_by(judged, correlation))
    scaled = np.tanh(longer / longer.std(ddof=1))
    chance = sigmoid(judged.theta + judged.phi * scaled + judged.psi * easy)
    won = (generator.random(INSTRUCTIONS) < chance).astype(float)
    compared = Compared(
        won=list(won),
        longer_by=[int(x) for x in longer],
        prompts=[str(n) for n in range(INSTRUCTIONS)],
    )
    features = np.column_stack([np.ones_like(scaled), scaled])
    free = fit_logistic(features, won, np.ones_like(won), 0.0, 0.0)
    figures = {
        "win-rate": 100 * float(won.mean()),
        "free slope": 100 * float(sigmoid(free[:1])[0]),
        "held slope": _figure(compared),
    }
    return {name: abs(figure - judged.controlled) for name, figure in figures.items()}


def _figure(compared: Compared) -> float:
    found = length_controlled(compared)
    return 100 * found.win_rate if isinstance(found, LengthControlled) else float("nan")


def _longer_by(judged: Judged, correlation: float) -> float:
    """Return by how many spreads the answers are longer, if the win-rate is the published one."""
    points, weights = _grid()
    one, other = np.meshgrid(points, points)
    held = np.outer(weights, weights)
    easy = DIFFICULTY * (correlation * one + np.sqrt(1 - correlation**2) * other)
    low, high = -4.0, 4.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        chance = sigmoid(judged.theta + judged.phi * np.tanh(one + middle) + judged.psi * easy)
        low, high = (
            (middle, high) if 100 * (chance * held).sum() < judged.win_rate else (low, middle)
        )
    return (low + high) / 2


def _grid() -> tuple[Numbers, Numbers]:
    points, weights = hermegauss(31)
    return points, weights / weights.sum()


def slopes(path: Path) -> Iterator[tuple[str, float, float, int]]:
    """Yield each judge of PandaLM's file, its phi, the standard error of that, and the verdicts."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for judge in JUDGES:
        verdicts = [(row, WINS[row[judge]]) for row in rows if row[judge] in WINS]
        pairs = sorted({row["cmp_key"] for row, _ in verdicts})
        apart = np.array([len(str(r["response2"])) - len(str(r["response1"])) for r, _ in verdicts])
        about = np.array([pairs.index(row["cmp_key"]) for row, _ in verdicts])
        spread = np.array([apart[about == n].std(ddof=1) for n in range(len(pairs))])
        # `information` needs the slope in the second column; each pair of models has its own level.
        levels = (about[:, None] == np.arange(len(pairs))).astype(float)
        features = np.column_stack([levels[:, 0], np.tanh(apart / spread[about]), levels[:, 1:]])
        won, each = np.array([win for _, win in verdicts]), np.ones(len(verdicts))
        found = fit_logistic(features, won, each, 0.0, 1e-6)
        error = information(features, found, each) ** -0.5
        yield judge, float(found[1]), float(error), len(verdicts)


def table(models: Sequence[Judged], generator: np.random.Generator) -> Iterator[str]:
    """Yield the lines of a table: median and largest error in points, by win-rate."""
    yield "| correlation | win-rate, % | models | " + " | ".join(METHODS) + " |"
    yield "| ---: " * (3 + len(METHODS)) + "|"
    for correlation in CORRELATIONS:
        for low, high in BANDS:
            held = [m for m in models if low <= m.win_rate < high]
            found = [errors(m, correlation, generator) for m in held]
            cells = [_cell([e[name] for e in found]) for name in METHODS]
            yield f"| {correlation} | {low}-{high} | {len(held)} | " + " | ".join(cells) + " |"


def _cell(missed: Sequence[float]) -> str:
    return f"{np.nanmedian(missed):.1f} ({np.nanmax(missed):.0f})" if missed else ""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=60)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--board", type=Path)
    parser.add_argument("--pandalm", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.pandalm is not None:
        print(f"published, at a win-rate of a half: {published_slope(0.5):.2f} ± {SPREAD:.2f}")
        for judge, phi, error, n in slopes(options.pandalm):
            print(f"{judge}: {phi:.2f} ± {error:.2f} ({n} verdicts)")
        return
    generator = np.random.default_rng(options.seed)
    if (options.weights is None) != (options.board is None):
        parser.error("--weights and --board go together")
    models = (
        drawn(options.models, generator)
        if options.weights is None
        else published(options.weights, options.board)
    )
    print("error in points: median (largest)")
    for line in table(list(models), generator):
        print(line)


if __name__ == "__main__":
    main()
