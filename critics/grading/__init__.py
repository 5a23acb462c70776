"""Grades of completions: the questions for each aspect, and their replies (UltraFeedback)."""
