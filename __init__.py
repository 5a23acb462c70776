"""A loop that improves a language model by its own feedback, and keeps every sentence of evidence.

This module is the public Python interface. It imports nothing heavy: neither torch nor an engine.
"""

__version__ = "0.1.0"
