"""The top floor: command line, daemon, the verbs of an iteration, the recipes and evaluation."""
