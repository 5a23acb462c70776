"""Completions by a pool of models, each under a principle (UltraFeedback, Section 2.3)."""
