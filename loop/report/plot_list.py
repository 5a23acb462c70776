"""The plots of a report, in their order."""

from collections.abc import Sequence

from .approval_plot import approval_plot
from .critic_plot import critic_plot
from .length_plot import length_plot
from .report_plot import PlotMaker
from .results_plot import results_plot

PLOTS: Sequence[PlotMaker] = (results_plot, critic_plot, approval_plot, length_plot)
