"""The report of runs: one page with their results, plots and the rows of the plots."""
