"""How often a model's answers win against a reference's: pure statistics over preferences.

No store, no model: rows of a file or of the lake come in as numbers. Randomness is seeded.
"""
