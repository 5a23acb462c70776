"""Judging by hand: what people are given, what they said, and how it comes into the run."""
