"""The plots of a report, in their order."""

from collections.abc import Sequence

from .approval_plot import approval_plot
from .critic_plot import critic_plot
from .judge_health import judge_plot
from .length_plot import length_plot
from .optimisation_plot import optimisation_plot
from .pair_health import pairs_plot
from .refinement_gain import refinement_plot
from .refinement_rounds import rounds_plot
from .report_plot import PlotMaker
from .results_plot import results_plot
from .spending import spending_plot
from .training_curves import training_plot

PLOTS: Sequence[PlotMaker] = (
    results_plot,
    critic_plot,
    approval_plot,
    optimisation_plot,
    length_plot,
    refinement_plot,
    rounds_plot,
    pairs_plot,
    training_plot,
    judge_plot,
    spending_plot,
)
