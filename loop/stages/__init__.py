"""The verbs of an iteration: each plans its units, subtracts what is committed, pays the rest."""
