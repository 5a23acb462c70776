"""How far a judge can be trusted: its verdicts beside people's, its variance, and its tastes."""
