"""The plots of a report, in their order."""

from collections.abc import Sequence

from .report_plot import PlotMaker
from .results_plot import results_plot

PLOTS: Sequence[PlotMaker] = (results_plot,)
