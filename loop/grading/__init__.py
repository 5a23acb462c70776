"""The verbs that grade completions, and who grades in a run."""
