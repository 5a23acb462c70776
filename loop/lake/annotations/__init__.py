"""Judging by hand: the items to judge, people's verdicts, and their way into the run."""
