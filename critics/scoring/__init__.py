"""Scores of single answers by a strong judge: its questions, and the reading of its replies."""
