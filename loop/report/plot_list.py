"""The plots of a report, in their order."""

from collections.abc import Sequence

from .judge_health import judge_plot
from .pair_health import pairs_plot
from .refinement_gain import refinement_plot
from .report_plot import PlotMaker
from .results_plot import results_plot
from .spending import spending_plot
from .training_curves import training_plot

PLOTS: Sequence[PlotMaker] = (
    results_plot,
    refinement_plot,
    pairs_plot,
    training_plot,
    judge_plot,
    spending_plot,
)
