"""The report of runs: one page that says what came of them, with its plots and their rows."""
