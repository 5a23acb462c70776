"""The verbs of an iteration: each plans its units, skips committed ones and runs the rest."""
