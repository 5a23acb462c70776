"""The search index over the texts of a lake, and the overlap of its prompts."""
