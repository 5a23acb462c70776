"""Grades of completions: what is asked in each aspect, and how replies are read (UltraFeedback)."""
