"""Intervals over prompts in clusters and over seeds, verdicts, win-rates: pure statistics."""
