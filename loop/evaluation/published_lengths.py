"""The prior of a new fit of how much judges like length, from AlpacaEval's published fits.

AlpacaEval publishes, for each model on its board, the coefficients of
    logit P(model wins on x) = theta + phi * tanh(delta(x) / std(delta)) + psi * difficulty(x)
(github.com/tatsu-lab/alpaca_eval, metrics/weights/weighted_alpaca_eval_gpt4_turbo/
length_controlled_v1, commit 01f3cb2; delta is the model's length less the reference's), and its
win-rates and lengths (package alpaca_eval 0.6.6, leaderboards/data_AlpacaEval_2). Of the 183 models
that are in both:

- phi has mean 1.55 and standard deviation 0.36. It falls with the win-rate: a least-squares line is
  1.19 - 0.20 * logit(win-rate), from which the models' standard deviation is 0.28.
- Two more boards, of other judges, are in that package: between a model's win-rate and its
  length-controlled one, Claude 3 Opus moves 1.20 to 1.38 times as many logits as GPT-4 Turbo, and
  Mistral Large 1.02 to 1.32 times. The ten ratios have standard deviation 0.11, or 0.17 of phi.
- Difficulty is not in the package. The published theta, psi and length-controlled win-rates, and
  their standard errors, agree best if it has mean 0 and standard deviation 1.45 (median error of
  183 win-rates: 0.5 points).
- logit(length-controlled win-rate) is 0.74 * theta - 0.06 over the 183: if difficulty is left out,
  all coefficients shrink by this factor.

AlpacaEval itself pulls phi and psi towards fits of a verbose and a terse copy of its baseline, two
times 805 comparisons of weight 0.1 in which theta is 0. With the published coefficients and
win-rates of the two these have the curvature `PULL`; their optimum is published by accident, under
the name of a model `example` which never won: phi 1.84, psi 0.74.

One number is an assumption: if answers are shorter on instructions that are harder to win, the
slope of a fit without difficulty is biased for any number of prompts. With psi * difficulty of 0.92
* 1.45 logits and a correlation of 0.3 between difficulty and length the bias is about 0.5.
"""

import numpy as np

from ..lake.statistics.bootstrap import Numbers

LINE = (1.19, -0.20)
"""phi for a win-rate of a half, and by how much it grows with its logit."""
MODELS, JUDGES = 0.28, 0.17
"""Standard deviations of phi between models and between judges."""
LEFT_OUT = 0.74
"""The factor by which coefficients shrink without difficulty."""
CONFOUNDED = 0.5
"""Standard deviation of the bias of length's slope when difficulty is left out."""
DIFFICULTY = 1.45
"""The standard deviation of AlpacaEval's difficulty."""
PULLED_TO = (1.84, 0.74)
PULL = ((13.1, -10.9), (-10.9, 44.6))
LOWEST, HIGHEST = 0.018, 0.778
"""The win-rates that the published fits are of."""


def centre(win_rate: float) -> float:
    """Return phi as published for such a win-rate, without difficulty."""
    held = min(max(win_rate, LOWEST), HIGHEST)
    start, slope = LINE
    return LEFT_OUT * (start + slope * float(np.log(held / (1 - held))))


def precision() -> float:
    """Return the inverse variance of phi about its centre, without difficulty."""
    return 1 / (LEFT_OUT**2 * (MODELS**2 + JUDGES**2))


def strengthened(information: float) -> float:
    """Return the precision against data with `information` on a slope that may be confounded.

    Any amount of such data leaves the slope a standard deviation of at least `CONFOUNDED`.
    """
    return precision() * (1 + information * CONFOUNDED**2)


def alpaca_pull() -> tuple[Numbers, Numbers]:
    """Return the mean and the precision of (phi, psi) that AlpacaEval's program pulls to."""
    return np.array(PULLED_TO), np.array(PULL)
