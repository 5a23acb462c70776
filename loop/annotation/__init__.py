"""Comparisons by simulated annotators: who compares, what is shown, how it is asked and kept."""
